//! Clients that send garbage to the ports of a cluster.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ardea_network::exchange::{EdgeNumber, Header, JobNumber, Kind, MAX_PAYLOAD_BYTES, StreamId};

use crate::arena::Arena;
use crate::deaths::NumbersJob;
use crate::processes::{Process, Role, files, ports, resident_bytes, threads};

/// The maximum growth of a process's memory after garbage.
const MOST_BYTES: u64 = 64 << 20;

/// The number of conversations per port.
const CONVERSATIONS: u32 = 60;

/// The number of samples of the processes' resources beforehand.
const LOOKS: u32 = 5;

/// The environment variable with a seed, to repeat a run.
const SEED: &str = "ARDEA_FUZZ_SEED";

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

/// Returns fixed garbage messages.
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
        // The first bytes of a TLS client, and a record that is longer than the data that follows.
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        [b"\x16\x03\x01\x40\x00\x01".to_vec(), vec![0; 500]].concat(),
    ]
}

pub fn random_bytes_on_every_port_stop_no_job_and_leave_nothing_open() {
    let seed = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_nanos() as u64
    });
    eprintln!("random bytes of {SEED}={seed}");
    // Some of its instances have their own processes.
    let job = NumbersJob::begun_as(Arena::with_hosts(2), "rate=1000 processes=true", |_| {
        "--set metrics.sinks=prometheus:127.0.0.1:0".to_string()
    });
    let arena = &job.arena;
    job.until_more();
    let processes = arena.processes();
    // Several samples, to include resources that come and go.
    let mut before: BTreeMap<i32, Held> = BTreeMap::new();
    for _ in 0..LOOKS {
        job.until_more();
        for process in &processes {
            let held = before.entry(process.pid).or_default();
            *held = held.most(Held::by(process));
        }
    }
    let all = ports_of(&processes);
    let of = |is: fn(&Role) -> bool| all.iter().filter(|(role, _)| is(role)).count();
    // Hosts listen for workers, other hosts, checkpoints in memory, and users; containers for each
    // other and for metrics.
    assert_eq!(of(|role| matches!(role, Role::Host(_))), 2 * 4, "{all:?}");
    assert_eq!(
        of(|role| matches!(role, Role::Worker(..))),
        3 * 2,
        "{all:?}"
    );

    thread::scope(|scope| {
        for (number, (_, port)) in (0..).zip(&all) {
            scope.spawn(move || Stranger::new(seed, number).talk(*port));
        }
        job.until_more();
    });

    assert_eq!(
        arena.processes(),
        processes,
        "nobody died of it, nobody was born"
    );
    for process in &processes {
        let before = before[&process.pid];
        arena.until_none(|| {
            let now = Held::by(process);
            let is_more = !now.is_within(before);
            is_more.then(|| format!("{process:?}: {before:?} before, {now:?} now"))
        });
    }
    job.until_more();
    job.end();
}

/// Returns the ports at which processes listen.
fn ports_of(processes: &[Process]) -> Vec<(Role, u16)> {
    let of = |process: &Process| {
        let ports = ports(process.pid).into_iter();
        let role = process.role.clone();
        ports
            .map(move |port| (role.clone(), port))
            .collect::<Vec<_>>()
    };
    processes.iter().flat_map(of).collect()
}

/// The resources of a process at a moment.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    files: usize,
    threads: usize,
    bytes: u64,
}

impl Held {
    fn by(process: &Process) -> Self {
        Held {
            files: files(process.pid),
            threads: threads(process.pid),
            bytes: resident_bytes(process.pid),
        }
    }

    fn most(self, other: Held) -> Held {
        Held {
            files: self.files.max(other.files),
            threads: self.threads.max(other.threads),
            bytes: self.bytes.max(other.bytes),
        }
    }

    fn is_within(self, before: Held) -> bool {
        self.files <= before.files
            && self.threads <= before.threads
            && self.bytes < before.bytes + MOST_BYTES
    }
}

/// A client that sends unexpected messages; the same seed gives the same messages.
struct Stranger {
    state: u64,
    /// Connections that stay open while others are opened.
    open: Vec<TcpStream>,
}

impl Stranger {
    fn new(seed: u64, number: u64) -> Self {
        Stranger {
            state: seed ^ (number << 48),
            open: Vec::new(),
        }
    }

    /// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.random() % bound.max(1) as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.random() as u8).collect()
    }

    fn talk(&mut self, port: u16) {
        for _ in 0..CONVERSATIONS {
            let mut said = self.nonsense();
            // Half of the frames are truncated; some connections then stay idle.
            if self.below(2) == 0 {
                said.truncate(self.below(said.len()));
            }
            match self.below(4) {
                0 => {
                    let mut stream = connect(port);
                    let _ = stream.write_all(&said);
                    self.open.push(stream);
                }
                _ => send(port, &said, 1),
            }
        }
    }

    /// Returns a message that begins as some port expects.
    fn nonsense(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.bytes(4 << 10),
            1 => self.bytes(512 << 10),
            2 => {
                let length = (1 << 20) + self.random() as u32 % (u32::MAX - (1 << 20));
                self.behind(length.to_le_bytes().to_vec(), 8 << 10)
            }
            3 => {
                let body = self.bytes(8 << 10);
                [(body.len() as u32).to_le_bytes().to_vec(), body].concat()
            }
            4 => self.greeting(),
            5 => self.frame(),
            6 => {
                let head = format!(
                    "POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n",
                    self.random()
                );
                self.behind(head.into_bytes(), 8 << 10)
            }
            _ => self.behind(b"GET /".to_vec(), 128 << 10),
        }
    }

    fn behind(&mut self, mut head: Vec<u8>, most: usize) -> Vec<u8> {
        head.extend(self.bytes(most));
        head
    }

    /// Returns the first message between processes of a cluster, up to the cluster's name.
    fn greeting(&mut self) -> Vec<u8> {
        let mut body = b"ARDC".to_vec();
        body.extend(ardea_network::rpc::VERSION.to_le_bytes());
        body.extend(self.bytes(300));
        [(body.len() as u32).to_le_bytes().to_vec(), body].concat()
    }

    /// Returns a frame between containers that announces a payload of any length.
    fn frame(&mut self) -> Vec<u8> {
        let kinds = [
            Kind::Hello,
            Kind::Refusal,
            Kind::Records,
            Kind::Grant,
            Kind::Leave,
        ];
        let stream = StreamId {
            job: JobNumber(self.random() as u32),
            edge: EdgeNumber(self.random() as u32),
        };
        let header = Header {
            sequence: self.random(),
            ..Header::new(kinds[self.below(kinds.len())], stream)
        };
        let payload = self.bytes(8 << 10);
        let promised = match self.below(2) {
            0 => payload.len(),
            _ => self.below(MAX_PAYLOAD_BYTES),
        };
        [header.encode(promised).to_vec(), payload].concat()
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (long, short) = (Duration::from_secs(2), Duration::from_millis(20));
    stream.set_write_timeout(Some(long)).unwrap();
    stream.set_read_timeout(Some(short)).unwrap();
    stream
}

/// Sends `bytes` `times` times, unless the other end closes the connection.
fn send(port: u16, bytes: &[u8], times: u32) {
    let mut stream = connect(port);
    for _ in 0..times {
        if stream.write_all(bytes).is_err() {
            return;
        }
    }
    // A closed connection counts as a response as well.
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
