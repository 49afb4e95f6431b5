//! The workers of a measured job, none of which may end or restart.

use ardea_core::{Error, ErrorCode, Result};

use super::{Order, Sample, WorkerConnections};

/// A container and its incarnation.
type ContainerIncarnation = (u32, u64);

/// A fixed set of workers. A worker that restarts loses its counts, and sums would be wrong.
pub(crate) struct FixedWorkers {
    gathering: WorkerConnections,
    /// Sorted by container.
    incarnations: Vec<ContainerIncarnation>,
}

impl FixedWorkers {
    /// Records the workers that are connected now.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if their number is not `containers`.
    pub(crate) fn from_connected(gathering: WorkerConnections, containers: u32) -> Result<Self> {
        let lives = incarnations_of(&gathering.samples(false));
        let (told, all) = (lives.len(), containers as usize);
        if told != all {
            return Err(unsteady(format!(
                "{told} of {all} containers report to the bench"
            )));
        }
        Ok(FixedWorkers {
            gathering,
            incarnations: lives,
        })
    }

    pub(crate) fn order(&self, order: Order) {
        self.gathering.order(order);
    }

    /// Returns the samples of all workers, sorted by container.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if a worker does not answer or has restarted.
    pub(crate) fn samples(&self, latencies: bool) -> Result<Vec<Sample>> {
        let samples = self.gathering.samples(latencies);
        match lost(&self.incarnations, &incarnations_of(&samples)) {
            Some(what) => Err(unsteady(what)),
            None => Ok(samples),
        }
    }
}

fn incarnations_of(samples: &[Sample]) -> Vec<ContainerIncarnation> {
    let lives = samples.iter().map(|it| (it.container, it.incarnation));
    lives.collect()
}

/// Describes the first worker of `incarnations` that is missing from `now`.
fn lost(lives: &[ContainerIncarnation], now: &[ContainerIncarnation]) -> Option<String> {
    let (container, _) = lives.iter().find(|life| !now.contains(life))?;
    let is_there_again = now.iter().any(|(other, _)| other == container);
    Some(match is_there_again {
        true => format!("container {container} was restarted while the bench ran"),
        false => format!("container {container} does not report to the bench any more"),
    })
}

fn unsteady(what: String) -> Error {
    Error::new(ErrorCode::Network, what)
        .hint("a worker has died, or the machine paused for long: run the bench again")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::super::wire::{ControlledLoad, WorkerIdentity, serve_orders};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    struct Quiet;

    impl ControlledLoad for Quiet {
        fn handle_order(&self, _: Order) {}

        fn numbers(&self) -> BTreeMap<String, u64> {
            BTreeMap::new()
        }

        fn latencies(&self) -> Vec<(u64, u64)> {
            Vec::new()
        }
    }

    fn come(gathering: &WorkerConnections, container: u32, incarnation: u64) {
        let who = WorkerIdentity {
            container,
            incarnation,
        };
        serve_orders(gathering.path(), who, Arc::new(Quiet)).unwrap();
    }

    #[test]
    fn samples_fail_after_a_container_has_restarted() {
        let folder = tempfile::tempdir().unwrap();
        let gathering = WorkerConnections::in_folder(folder.path()).unwrap();
        for container in [2, 1] {
            come(&gathering, container, 5);
        }
        gathering.wait_for(2, PATIENCE).unwrap();
        let workers = FixedWorkers::from_connected(gathering, 2).unwrap();
        let lives = incarnations_of(&workers.samples(true).unwrap());
        assert_eq!(lives, [(1, 5), (2, 5)]);
        come(&workers.gathering, 2, 6);
        let deadline = Instant::now() + PATIENCE;
        let error = loop {
            if let Err(error) = workers.samples(true) {
                break error;
            }
            assert!(Instant::now() < deadline);
        };
        assert_eq!(error.code(), ErrorCode::Network);
        let told = error.to_string();
        assert!(told.contains("container 2 was restarted"), "{told}");
    }

    #[test]
    fn a_missing_worker_is_named() {
        let lives = [(1, 5), (2, 5)];
        assert_eq!(lost(&lives, &lives), None);
        let told = lost(&lives, &[(2, 5)]).unwrap();
        assert!(told.starts_with("container 1 does not report"));
    }

    #[test]
    fn all_have_to_be_there_at_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let gathering = WorkerConnections::in_folder(folder.path()).unwrap();
        come(&gathering, 1, 5);
        gathering.wait_for(1, PATIENCE).unwrap();
        let refused = FixedWorkers::from_connected(gathering, 2).err().unwrap();
        assert!(
            refused.to_string().contains("1 of 2 containers"),
            "{refused}"
        );
    }
}
