//! Producers that are killed at any moment lose, double and reorder nothing that was sent.
//!
//! The test program is also the producers. It kills them for a few seconds, or longer:
//! `cargo test -p ardea-shm --test killed -- --seconds 3600`.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::env;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ardea_shm::{
    MessageHead, ProducerEnd, RingAcceptor, RingConfig, RingConsumer, RingEvent, RingMessage,
    RingProducer, RingSize,
};
use rustix::process::{Pid, Signal, kill_process};

const FOLDER: &str = "KILLED_TEST_FOLDER";
const LIFE: &str = "KILLED_TEST_LIFE";
/// The lives that are never killed: their processes end when they see the file `over`.
const IMMORTAL: u64 = 2;
const PRODUCERS: u64 = 8;
const SECONDS: u64 = 3;
/// The longest time from the end of the kills to the last message.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let (Some(folder), Ok(life)) = (env::var_os(FOLDER), env::var(LIFE)) {
        return be_a_producer(&PathBuf::from(folder), life.parse().unwrap());
    }
    // The program lists its tests like the standard test harness.
    let words: Vec<String> = env::args().collect();
    if words.iter().any(|word| word == "--list") {
        println!("producers_killed_at_any_moment: test");
        return ExitCode::SUCCESS;
    }
    let at = words.iter().position(|word| word == "--seconds");
    let seconds = at.map_or(SECONDS, |at| words[at + 1].parse().unwrap());
    producers_killed_at_any_moment(Duration::from_secs(seconds));
    println!("test producers_killed_at_any_moment ... ok");
    ExitCode::SUCCESS
}

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns message `number` of a life: both numbers, and bytes that follow from them.
fn message(life: u64, number: u64) -> Vec<u8> {
    let mut random = Random(life << 32 ^ number);
    random.below(1);
    let length = match random.below(100) {
        0 => random.below(50_000),
        1..5 => random.below(10_000),
        _ => random.below(300),
    };
    let mut bytes = [life.to_ne_bytes(), number.to_ne_bytes()].concat();
    let first = random.below(256);
    bytes.extend((0..length).map(|at| (first + at) as u8));
    bytes
}

/// Sends messages until it is killed; after each it writes down that it was sent.
fn be_a_producer(folder: &Path, life: u64) -> ExitCode {
    let stream = UnixStream::connect(folder.join("socket")).unwrap();
    let mut producer = RingProducer::connect(&stream).unwrap();
    let sent = File::create(folder.join(format!("sent-{life}"))).unwrap();
    let head = MessageHead::default();
    for number in 0.. {
        let bytes = message(life, number);
        match number % 7 {
            0 => producer.send_batch(head, &[&bytes, &[1, 2, 3]]).unwrap(),
            1 | 2 => {
                let mut writer = producer.begin(head, bytes.len()).unwrap();
                for piece in bytes.chunks(100) {
                    writer.write(piece).unwrap();
                    // Time to be stopped or killed within the message.
                    thread::park_timeout(Duration::from_micros(100));
                }
                writer.commit().unwrap();
            }
            _ => producer.send(head, &bytes).unwrap(),
        }
        sent.write_all_at(&(number + 1).to_ne_bytes(), 0).unwrap();
        if life < IMMORTAL && number % 100 == 0 && folder.join("over").exists() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn sent(folder: &Path, life: u64) -> u64 {
    let bytes = fs::read(folder.join(format!("sent-{life}"))).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

fn start(folder: &Path, life: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(FOLDER, folder).env(LIFE, life.to_string());
    command.spawn().unwrap()
}

/// Hands the ring to every process that connects, until the file `all` exists.
fn accept_all(folder: PathBuf, acceptor: RingAcceptor) -> JoinHandle<()> {
    let listener = UnixListener::bind(folder.join("socket")).unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            // A process that dies in the handshake fails it.
            let _ = acceptor.accept(&stream);
            if folder.join("all").exists() {
                break;
            }
        }
    })
}

/// Starts, stops, continues and kills producers until the time is over. Returns the lives.
fn kill_for(folder: &Path, time: Duration, mut random: Random) -> u64 {
    let signal = |child: &Child, signal| kill_process(Pid::from_child(child), signal).unwrap();
    let mut running: Vec<Child> = (0..PRODUCERS).map(|life| start(folder, life)).collect();
    let (began, mut lives) = (Instant::now(), PRODUCERS);
    while began.elapsed() < time {
        thread::park_timeout(Duration::from_micros(random.below(8_000)));
        let index = (IMMORTAL + random.below(PRODUCERS - IMMORTAL)) as usize;
        if random.below(4) == 0 {
            let slow = random.below(PRODUCERS) as usize;
            signal(&running[slow], Signal::STOP);
            thread::park_timeout(Duration::from_micros(random.below(20_000)));
            signal(&running[slow], Signal::CONT);
        }
        running[index].kill().unwrap();
        running[index].wait().unwrap();
        running[index] = start(folder, lives);
        lives += 1;
    }
    File::create(folder.join("over")).unwrap();
    for child in &mut running[IMMORTAL as usize..] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for child in &mut running[..IMMORTAL as usize] {
        assert!(child.wait().unwrap().success());
    }
    lives
}

/// Checks a message, and counts it for its life.
fn check(message_read: RingMessage<'_>, received: &mut HashMap<u64, u64>) {
    let bytes = if message_read.is_batch {
        let parts: Vec<_> = message_read.payload.batch().map(Result::unwrap).collect();
        assert_eq!(parts[1].to_vec(), [1, 2, 3]);
        parts[0].to_vec()
    } else {
        message_read.payload.to_vec()
    };
    let number_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let (life, number) = (number_at(0), number_at(8));
    let next = received.entry(life).or_default();
    assert_eq!(number, *next, "life {life} is out of order");
    assert!(
        bytes == message(life, number),
        "life {life} has other bytes"
    );
    *next += 1;
}

fn producers_killed_at_any_moment(time: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let seed = RandomState::new().build_hasher().finish();
    println!("seed {seed}");
    let mut consumer = RingConsumer::new(RingConfig {
        size: RingSize::MIN,
        ..RingConfig::default()
    })
    .unwrap();
    let accepting = accept_all(folder.path().to_path_buf(), consumer.acceptor());
    let is_over = Arc::new(AtomicBool::new(false));
    let killer = {
        let (path, is_over) = (folder.path().to_path_buf(), Arc::clone(&is_over));
        thread::spawn(move || {
            let lives = kill_for(&path, time, Random(seed));
            File::create(path.join("all")).unwrap();
            drop(UnixStream::connect(path.join("socket")));
            accepting.join().unwrap();
            is_over.store(true, Ordering::SeqCst);
            lives
        })
    };
    let (mut received, mut ends) = (HashMap::new(), [0; 2]);
    let (mut over_since, mut pauses) = (None, Random(!seed));
    loop {
        match consumer.poll().unwrap() {
            Some(RingEvent::Message(message)) => {
                check(message, &mut received);
                // A full ring now and then.
                if pauses.below(2_000) == 0 {
                    thread::park_timeout(Duration::from_millis(2));
                }
            }
            Some(RingEvent::Ended { end, .. }) => match end {
                ProducerEnd::Closed => ends[0] += 1,
                ProducerEnd::Lost => ends[1] += 1,
                ProducerEnd::Faulty(error) => panic!("{error}"),
            },
            None => {
                let is_over = is_over.load(Ordering::SeqCst);
                if is_over && consumer.producers() == 0 {
                    break;
                }
                if is_over {
                    let since = *over_since.get_or_insert_with(Instant::now);
                    assert!(since.elapsed() < PATIENCE, "{ends:?} ended");
                }
                consumer.wait(Some(Duration::from_millis(100))).unwrap();
            }
        }
    }
    let lives = killer.join().unwrap();
    for life in 0..lives {
        let (sent, received) = (sent(folder.path(), life), received.get(&life).copied());
        let received = received.unwrap_or(0);
        // The last message may have been sent without a time to write that down.
        assert!(
            sent == received || sent + 1 == received,
            "life {life} sent {sent}, and {received} were received"
        );
    }
    assert_eq!(ends[0], IMMORTAL);
    let counters = consumer.counters();
    assert_eq!(counters.fill, 0, "{counters:?}");
    println!("{lives} lives, {counters:?}");
}
