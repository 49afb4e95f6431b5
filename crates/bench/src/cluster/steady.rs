//! The workers of a job that is measured: none of them may go, or begin anew.

use ardea_core::{Error, ErrorCode, Result};

use super::{Gathering, Order, Sample};

/// A container, and which life of it.
type Life = (u32, u64);

/// Workers that were all there at a moment, and have to stay: what one that begins anew has counted is lost, and sums would be wrong.
pub(crate) struct Steady {
    gathering: Gathering,
    /// By container.
    lives: Vec<Life>,
}

impl Steady {
    /// Those who are there now.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if these are not the workers of so many containers.
    pub(crate) fn from_now_on(gathering: Gathering, containers: u32) -> Result<Self> {
        let lives = lives_of(&gathering.samples(false));
        let (told, all) = (lives.len(), containers as usize);
        if told != all {
            return Err(unsteady(format!(
                "{told} of {all} containers tell the bench what they do"
            )));
        }
        Ok(Steady { gathering, lives })
    }

    /// Has all do this.
    pub(crate) fn order(&self, order: Order) {
        self.gathering.order(order);
    }

    /// What they tell, sorted by container.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if one does not tell, or is another than at the beginning.
    pub(crate) fn samples(&self, latencies: bool) -> Result<Vec<Sample>> {
        let samples = self.gathering.samples(latencies);
        match lost(&self.lives, &lives_of(&samples)) {
            Some(what) => Err(unsteady(what)),
            None => Ok(samples),
        }
    }
}

fn lives_of(samples: &[Sample]) -> Vec<Life> {
    let lives = samples.iter().map(|it| (it.container, it.incarnation));
    lives.collect()
}

/// What has become of the first of these lives that is not there any more.
fn lost(lives: &[Life], now: &[Life]) -> Option<String> {
    let (container, _) = lives.iter().find(|life| !now.contains(life))?;
    let is_there_again = now.iter().any(|(other, _)| other == container);
    Some(match is_there_again {
        true => format!("container {container} was started again while the bench ran"),
        false => format!("container {container} tells the bench no more what it does"),
    })
}

fn unsteady(what: String) -> Error {
    Error::new(ErrorCode::Network, what)
        .hint("one has died, or the machine stood still for long: run the bench again")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::super::wire::{Attended, Who, attend};
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    struct Quiet;

    impl Attended for Quiet {
        fn obey(&self, _: Order) {}

        fn numbers(&self) -> BTreeMap<String, u64> {
            BTreeMap::new()
        }

        fn latencies(&self) -> Vec<(u64, u64)> {
            Vec::new()
        }
    }

    fn come(gathering: &Gathering, container: u32, incarnation: u64) {
        let who = Who {
            container,
            incarnation,
        };
        attend(gathering.path(), who, Arc::new(Quiet)).unwrap();
    }

    #[test]
    fn nothing_is_told_any_more_when_a_container_has_been_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let gathering = Gathering::in_folder(folder.path()).unwrap();
        for container in [2, 1] {
            come(&gathering, container, 5);
        }
        gathering.wait_for(2, PATIENCE).unwrap();
        let workers = Steady::from_now_on(gathering, 2).unwrap();
        let lives = lives_of(&workers.samples(true).unwrap());
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
        assert!(told.contains("container 2 was started again"), "{told}");
    }

    #[test]
    fn who_is_gone_is_named() {
        let lives = [(1, 5), (2, 5)];
        assert_eq!(lost(&lives, &lives), None);
        let told = lost(&lives, &[(2, 5)]).unwrap();
        assert!(told.starts_with("container 1 tells the bench no more"));
    }

    #[test]
    fn all_have_to_be_there_at_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let gathering = Gathering::in_folder(folder.path()).unwrap();
        come(&gathering, 1, 5);
        gathering.wait_for(1, PATIENCE).unwrap();
        let refused = Steady::from_now_on(gathering, 2).err().unwrap();
        assert!(
            refused.to_string().contains("1 of 2 containers"),
            "{refused}"
        );
    }
}
