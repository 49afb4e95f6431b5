//! Invalid peers do not affect a worker, and a worker that has ended leaves no threads or files.
//!
//! A separate test program, because it counts the threads and files of its process.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use ardea_coordination::packing::ContainerId;
use ardea_engine::Job;

#[path = "worker/containers.rs"]
#[allow(dead_code)]
mod containers;
#[path = "worker/jobs.rs"]
#[allow(dead_code)]
mod jobs;
#[path = "worker/master.rs"]
#[allow(dead_code)]
mod master;

use containers::{start, thread};
use jobs::Adding;
use master::{Master, PATIENCE, plan};

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, |entries| entries.count())
}

/// Returns the numbers of threads and open files of this process.
fn held() -> (usize, usize) {
    (count("/proc/self/task"), count("/proc/self/fd"))
}

/// Sends several kinds of invalid data to the address.
fn throw_garbage(address: &str) {
    let mut greeting = b"\x07\0\0\0ARDC".to_vec();
    greeting.extend(ardea_network::rpc::VERSION.to_le_bytes());
    greeting.extend([0xff; 200]);
    let all: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n",
        &[0xff; 100_000],
        &[0; 64],
        &greeting,
        b"",
    ];
    for garbage in all {
        let mut socket = TcpStream::connect(address).unwrap();
        // The connection may be closed already.
        let _ = socket.write_all(garbage);
    }
}

fn run_a_job() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let plan = plan(&[
            (1, &[("numbers", 0), ("sums", 0)]),
            (2, &[("numbers", 1), ("sums", 1), ("list", 0)]),
        ]);
        let mut master = Master::start(plan).await;
        let job = Arc::new(Adding {
            pace: Some(1_000),
            isolated: vec!["sums".into()],
            ..Adding::new(100_000)
        });
        let workers = [1, 2].map(|container| {
            let job: Arc<dyn Job> = Arc::<Adding>::clone(&job);
            let mut start = start(container, 1, &master.address);
            for (key, value) in [("test.isolated", "sums"), ("test.adding", "100000")] {
                start.settings.insert(key.into(), value.into());
            }
            thread(start, job)
        });
        master.start_reading().await;
        throw_garbage(&master.address);
        for container in [1, 2] {
            throw_garbage(&master.registered[&ContainerId(container)].endpoint);
        }
        master.all_ended().await;
        master.say_farewell().await;
        for worker in workers {
            worker.join().unwrap().unwrap();
        }
        let sum: u64 = job.results().iter().map(|(_, sum)| sum).sum();
        assert_eq!(sum, (0..100_000).sum::<u64>());
    });
}

#[test]
fn strangers_change_nothing_and_nothing_is_left_at_the_end() {
    // Process-wide resources, such as the signal handler, are created in the first run.
    run_a_job();
    let before = held();
    for _ in 0..3 {
        run_a_job();
    }
    let start = Instant::now();
    let is_more = |now: (usize, usize)| now.0 > before.0 || now.1 > before.1;
    while is_more(held()) {
        assert!(start.elapsed() < PATIENCE, "{before:?} became {:?}", held());
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}
