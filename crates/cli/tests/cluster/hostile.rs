//! Wrong input: of users, on disk, and from whoever finds a port.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::arena::Arena;
use crate::processes::{kill, kill_group, ports, resident_bytes};

pub fn what_can_not_run_is_refused_with_the_reason() {
    let arena = Arena::with_hosts(1);
    arena.succeed("submit word-count.yaml");
    let workers = arena.workers("word-count");

    for (line, says) in [
        ("submit word-count.yaml", "ARD-603"),
        (
            "submit word-count.yaml --name large --set instance.memory=2GiB --set container.memory=1GiB",
            "wants 2GiB memory",
        ),
        (
            "submit word-count.yaml --name x --set cluster.scheduler=slrm",
            "slrm",
        ),
        (
            "submit word-count.yaml --name x --set cluster.packing=bin",
            "bin",
        ),
        ("submit nothing.yaml", "nothing.yaml"),
        ("kill word-cuont --yes", "did you mean word-count?"),
        ("plan word-cuont", "did you mean word-count?"),
        ("submit wordcuont", "did you mean wordcount?"),
        ("cluster stop --cluster locla", "did you mean local?"),
        ("logs word-count --container 9", "it has one: 1"),
    ] {
        let said = arena.fail(line);
        assert!(said.contains(says), "{line}: {said}");
        assert!(said.contains("hint:"), "{line}: {said}");
    }
    let api = arena.json("cluster status")["hosts"][0]["api"].clone();
    let other = arena.fail(&format!(
        "list --cluster other --at {}",
        api.as_str().unwrap()
    ));
    assert!(other.contains("of cluster \"local\""), "{other}");

    corrupt_package(&arena);
    assert_eq!(arena.workers("word-count"), workers);
    assert_eq!(arena.json("list").as_array().unwrap().len(), 1);
    arena.until_phase("word-count", "running");
}

pub fn a_state_that_can_not_be_read_is_told_where_people_look() {
    let arena = Arena::with_hosts(2);
    arena.succeed("submit word-count.yaml");
    let workers = arena.workers("word-count");
    let job = arena.cluster().join("state/tree/jobs/word-count");
    let nodes = fs::read_dir(job).unwrap().flatten().map(|it| it.path());
    let is_lease = |path: &std::path::PathBuf| path.to_string_lossy().contains("/master-");
    let lease = nodes.filter(|path| is_lease(path)).last().unwrap();
    fs::write(lease.join(".node"), "junk").unwrap();

    let says_why = |told: &str| told.contains("ARD-505") && told.contains("master-");
    arena.until("told by describe", || {
        arena
            .look("word-count")
            .is_some_and(|told| says_why(&told["reason"].to_string()))
    });
    let listed = arena.succeed("list");
    assert!(
        listed.contains("no master") && says_why(&listed),
        "{listed}"
    );
    for host in ["host-1", "host-2"] {
        let log = arena.cluster().join(format!("logs/{host}.log"));
        arena.until("told by the log", || {
            says_why(&fs::read_to_string(&log).unwrap())
        });
    }
    fs::remove_dir_all(lease).unwrap();
    arena.until_phase("word-count", "running");
    assert_eq!(arena.workers("word-count"), workers, "its data went on");
}

/// A package with another byte is never run, and who looks at the job is told why. Submitting again puts it right.
fn corrupt_package(arena: &Arena) {
    arena.write("more.txt", "another package");
    let submit = "submit word-count.yaml --name damaged --file more.txt";
    arena.succeed(submit);
    let described = arena.json("describe damaged");
    let digest = described["program"]["package"].as_str().unwrap();
    let package = arena.cluster().join(format!("packages/{digest}.tar.zst"));
    let mut bytes = fs::read(&package).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;

    arena.hosts().iter().for_each(|(_, pid)| kill(*pid));
    arena
        .workers("damaged")
        .iter()
        .for_each(|(_, pid)| kill_group(*pid));
    fs::remove_dir_all(arena.cluster().join("cache").join(digest)).unwrap();
    fs::write(&package, bytes).unwrap();
    arena.succeed("cluster start");
    arena.until("told: why it does not run", || {
        arena
            .look("damaged")
            .is_some_and(|told| told.to_string().contains("ARD-63"))
    });
    assert_eq!(arena.workers("damaged"), []);

    let taken = arena.fail(submit);
    assert!(taken.contains("ARD-603"), "{taken}");
    arena.until_phase("damaged", "running");
    arena.succeed("kill damaged --yes");
}

/// How much more memory a process may have after it was sent garbage.
const MOST_BYTES: u64 = 64 << 20;

pub fn garbage_on_every_port_is_borne() {
    let arena = Arena::with_hosts(2);
    arena.succeed("submit word-count.yaml --set job.containers=2");
    let before = arena.processes();
    let memory: Vec<u64> = before.iter().map(|it| resident_bytes(it.pid)).collect();

    let mut asked = 0;
    for process in &before {
        for port in ports(process.pid) {
            asked += 1;
            for garbage in garbage() {
                send(port, &garbage, 1);
            }
            send(port, &[0xa5; 1 << 20], 100);
        }
    }
    assert!(asked >= 2 * 3 + 2, "{asked} ports of {before:?}");

    assert_eq!(arena.processes(), before, "nobody died of it");
    for (process, memory) in before.iter().zip(memory) {
        let more = resident_bytes(process.pid).saturating_sub(memory);
        assert!(more < MOST_BYTES, "{process:?} has {more} bytes more");
    }
    let counted = || arena.metric("word-count", "counts", "ardea_records_in_total");
    let so_far = counted();
    arena.until("counting on", || counted() > so_far);
    assert_eq!(arena.phase("word-count").as_deref(), Some("running"));
}

/// What strangers may say.
fn garbage() -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        vec![0],
        vec![0; 4096],
        vec![0xff; 4096],
        u32::MAX.to_le_bytes().to_vec(),
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n{"
            .to_vec(),
        (0..=255).cycle().take(70_000).collect(),
    ]
}

/// Sends this so many times, unless the other side has had enough.
fn send(port: u16, bytes: &[u8], times: u32) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let patience = Some(Duration::from_secs(2));
    stream.set_write_timeout(patience).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    for _ in 0..times {
        if stream.write_all(bytes).is_err() {
            return;
        }
    }
    // Who has closed it has answered as well.
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = [0; 4096];
    loop {
        match stream.read(&mut answer) {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
