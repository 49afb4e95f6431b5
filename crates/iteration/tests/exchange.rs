//! Iterations of several parties: reordering, bytes, losses.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_iteration::{
    Dataset, Exchange, Highest, Iterate, IterationReport, MemoryExchange, PeerListener, Replicated,
    SparseVector, Variables, Vector, VectorUpdate,
};
use ardea_network::rpc::{HandshakeRequest, Security, connect};

const FEATURES: usize = 1000;

/// The final vector, the greatest number, and the report of a party.
type Outcome = (Vec<f64>, u64, IterationReport);

/// Runs a party. In each partition one of a hundred components changes.
fn run(
    exchange: Option<Arc<dyn Exchange>>,
    is_sparse: bool,
    fails_at: Option<u64>,
) -> Result<Outcome> {
    let dataset = Dataset::split((1..=1000_u64).collect(), 8)?;
    let mut variables = Variables::new();
    let model = variables.add("model", Vector::zeros(FEATURES))?;
    let highest = variables.add("highest", Replicated(Highest(0)))?;
    let mut iterate = Iterate::new(variables).group(5).iterations(20);
    if let Some(exchange) = exchange {
        iterate = iterate.exchange(exchange);
    }
    let report = iterate.run(&dataset, |task| {
        let current = task.get(&model)?;
        if task.partition_index() == 7 && Some(task.iteration()) == fails_at {
            return Err(Error::new(ErrorCode::ReadFailed, "the disk is gone"));
        }
        let mut update = vec![0.0; FEATURES];
        for number in task.partition() {
            let at = (*number % 10) as usize * 7;
            update[at] += (1.0 - 0.01 * current.as_slice()[at]) / *number as f64;
        }
        let update = match is_sparse {
            true => VectorUpdate::Sparse(SparseVector::from_dense(&update)),
            false => VectorUpdate::Dense(update),
        };
        task.commit(&model, update)?;
        let last = task.partition().last().copied().unwrap_or_default();
        task.commit(&highest, Highest(last * task.iteration()))
    })?;
    let numbers = report.value(&model)?.as_slice().to_vec();
    let highest = report.value(&highest)?.0.0;
    Ok((numbers, highest, report))
}

fn run_mesh(
    mesh: Vec<MemoryExchange>,
    is_sparse: bool,
    fails_at: Option<u64>,
) -> Vec<Result<Outcome>> {
    let parties: Vec<_> = mesh
        .into_iter()
        .map(|exchange| thread::spawn(move || run(Some(Arc::new(exchange)), is_sparse, fails_at)))
        .collect();
    parties
        .into_iter()
        .map(|party| party.join().unwrap())
        .collect()
}

#[test]
fn parties_agree_to_the_bit_when_messages_are_reordered() {
    let (numbers, highest, _) = run(None, false, None).unwrap();
    assert_eq!(highest, 19_000);
    for processes in [2, 3, 5] {
        for is_sparse in [false, true] {
            for outcome in run_mesh(MemoryExchange::reordering_mesh(processes), is_sparse, None) {
                let (other, greatest, _) = outcome.unwrap();
                assert_eq!(
                    (&other, greatest),
                    (&numbers, highest),
                    "{processes} parties"
                );
            }
        }
    }
}

#[test]
fn sparse_updates_take_fewer_bytes_than_dense_ones() {
    let bytes = |is_sparse| {
        let outcomes = run_mesh(MemoryExchange::mesh(3), is_sparse, None);
        let counts = outcomes.into_iter().map(|outcome| {
            let (_, _, report) = outcome.unwrap();
            report.counters().exchanged_bytes
        });
        counts.sum::<u64>()
    };
    let (sparse, dense) = (bytes(true), bytes(false));
    assert!(sparse * 20 < dense, "{sparse} bytes against {dense}");
}

#[test]
fn the_failure_of_a_party_ends_all_with_its_reason() {
    for outcome in run_mesh(MemoryExchange::mesh(3), false, Some(12)) {
        let error = outcome.unwrap_err();
        assert_eq!(error.code(), ErrorCode::ReadFailed);
        assert!(error.to_string().contains("the disk is gone"), "{error}");
    }
}

#[test]
fn a_lost_party_ends_the_others() {
    let mut mesh = MemoryExchange::mesh(3);
    let lost = mesh.pop().unwrap();
    let parties: Vec<_> = mesh
        .into_iter()
        .map(|exchange| thread::spawn(move || run(Some(Arc::new(exchange)), true, None)))
        .collect();
    lost.close();
    for party in parties {
        let error = party.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::PeerLost);
    }
}

#[test]
fn a_party_that_begins_from_another_snapshot_is_refused() {
    let mesh = MemoryExchange::mesh(2);
    let parties: Vec<_> = mesh
        .into_iter()
        .enumerate()
        .map(|(party, exchange)| {
            thread::spawn(move || {
                let dataset = Dataset::split(vec![1, 2], 2)?;
                let mut variables = Variables::new();
                let highest = variables.add("highest", Replicated(Highest(0)))?;
                if party == 1 {
                    // After an iteration of its own.
                    let report = Iterate::new(variables).iterations(1);
                    let report = report.run(&dataset, |task| task.commit(&highest, Highest(1)))?;
                    variables = report.into_variables();
                }
                let run = Iterate::new(variables)
                    .iterations(9)
                    .exchange(Arc::new(exchange));
                run.run(&dataset, |task| {
                    task.get(&highest)?;
                    task.commit(&highest, Highest(1))
                })
            })
        })
        .collect();
    for party in parties {
        let error = party.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidJob, "{error}");
    }
}

const TIMEOUT: Duration = Duration::from_secs(20);

/// Listens for some processes; returns the listeners and their addresses.
fn listen(processes: usize) -> (Vec<PeerListener>, Vec<String>) {
    let listeners: Vec<_> = (0..processes)
        .map(|_| PeerListener::bind("127.0.0.1:0", &Security::new("test"), 1).unwrap())
        .collect();
    let addresses = listeners.iter().map(PeerListener::address).collect();
    (listeners, addresses)
}

/// Starts a process of a run as a thread.
fn start(
    process: usize,
    listener: PeerListener,
    addresses: &[String],
) -> thread::JoinHandle<Result<Outcome>> {
    let addresses = addresses.to_vec();
    thread::spawn(move || {
        let exchange = listener.connect(process as u32, &addresses, TIMEOUT)?;
        run(Some(Arc::new(exchange)), false, None)
    })
}

#[test]
fn an_unexpected_connection_removes_no_established_one() {
    let (mut listeners, addresses) = listen(3);
    let last = listeners.pop().unwrap();
    let mut parties: Vec<_> = listeners
        .into_iter()
        .enumerate()
        .map(|(process, listener)| start(process, listener, &addresses))
        .collect();
    // Process 1 has connected to process 0, and does not expect it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let security = Security::new("test").within("test/iteration/1".to_owned());
    let greeting = HandshakeRequest::new("0".to_owned());
    let unexpected = connect(&addresses[1], &greeting, &security, TIMEOUT);
    let unexpected = runtime.block_on(unexpected).unwrap();
    parties.push(start(2, last, &addresses));
    let (expected, _, _) = run(None, false, None).unwrap();
    for party in parties {
        let (numbers, _, _) = party.join().unwrap().unwrap();
        assert_eq!(numbers, expected);
    }
    drop(unexpected);
}

#[test]
fn updates_that_are_too_long_for_a_message_end_all_with_that_reason() {
    let (listeners, addresses) = listen(2);
    let parties: Vec<_> = listeners
        .into_iter()
        .enumerate()
        .map(|(process, listener)| {
            start(
                process,
                listener.max_update_bytes(FEATURES * 8 - 1),
                &addresses,
            )
        })
        .collect();
    for party in parties {
        let error = party.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::LimitReached, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("the updates of an iteration have 80"),
            "{text}"
        );
    }
}
