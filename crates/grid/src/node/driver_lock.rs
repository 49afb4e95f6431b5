//! Lock around the event loop of a member, which is run by the member's own thread or by a caller.
//!
//! A thread switch costs more than most operations. A caller therefore runs the event loop itself
//! if no other thread does, and polls for its answer for as long as a member on the same machine
//! needs. The member's thread handles everything else: requests of others, slow operations and
//! timers.
//!
//! A caller with many outstanding operations sleeps briefly between polls, since continuous polling
//! would take the CPU from the members that do the work.
//!
//! **No lost wake-ups.** Commands wait in a queue that every turn processes first. A sender that
//! cannot get the lock rings the poller. The member's thread, if it finds the lock taken, sets a
//! flag, tries once more, and sleeps. The lock holder checks the flag after unlocking, and rings.
//! It also rings if it left input for another turn. A caller that stops polling wakes the member's
//! thread.
//!
//! **Naps.** While callers run the loop frequently, each answer would wake the member's thread in
//! vain. It then sleeps for a fixed short time instead of polling sockets. The time is short enough
//! not to matter if the callers suddenly stop.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ardea_network::exchange::Poller;

use crate::node::command_queue::{CommandQueue, DriverCommand, Stopped};
use crate::node::driver::{Driver, PollResult};
use crate::node::request_handle::{Answers, Outcomes};

/// Time for which a caller polls for its answer before it blocks; slightly longer than another
/// member needs to wake up and answer.
const POLL_TIME: Duration = Duration::from_micros(200);

/// Sleep between polls of a caller with many outstanding operations, and the number of polls
/// without an answer after which it blocks.
const RESTS: Duration = Duration::from_micros(50);
const MOST_RESTS: u32 = 50;

/// Time for which the member's thread continues to poll after the last input before it sleeps.
const LINGERS: Duration = Duration::from_micros(20);

/// Length of a nap, and the average interval between callers' turns below which naps are
/// worthwhile.
const NAP: Duration = Duration::from_micros(150);
const OFTEN: Duration = Duration::from_micros(100);

/// Maximum sleep of the member's thread while another thread runs the loop.
const LOOKS_AGAIN: Duration = Duration::from_millis(1);

/// Number of tries to get the lock before a command is queued; together about the time of a short
/// turn.
const TRIES: u32 = 100;

/// Maximum polling score, the penalty of an unsuccessful poll, and the interval, in calls, at which
/// polling is tried despite a score of zero.
const MOST_LUCK: u32 = 64;
const MISS: u32 = 4;
const SELDOM: u32 = 64;

/// The event loop, its lock and its command queue.
pub(crate) struct DriverLock {
    driver: Mutex<Option<Driver>>,
    orders: CommandQueue,
    thread: OnceLock<Thread>,
    is_napping: AtomicBool,
    /// True if the member's thread has found the lock taken.
    was_missed: AtomicBool,
    /// Number of turns run by callers.
    drives: AtomicU32,
    /// True while a caller polls for an answer.
    is_looked_for: AtomicBool,
    /// Polling score: increases when polling was successful, decreases when it was not.
    polling_score: AtomicU32,
    asks: AtomicU32,
}

impl DriverLock {
    pub fn new(driver: Driver, orders: CommandQueue) -> Self {
        DriverLock {
            driver: Mutex::new(Some(driver)),
            orders,
            thread: OnceLock::new(),
            is_napping: AtomicBool::new(false),
            was_missed: AtomicBool::new(false),
            drives: AtomicU32::new(0),
            is_looked_for: AtomicBool::new(false),
            polling_score: AtomicU32::new(MOST_LUCK / 2),
            asks: AtomicU32::new(0),
        }
    }

    /// Returns the command queue, for threads that must not run the loop.
    pub fn orders(&self) -> &CommandQueue {
        &self.orders
    }

    /// Runs a command in this thread if the lock is free, and queues it otherwise. The caller must
    /// [wait](Self::wait) for the answer.
    pub fn ask(&self, order: DriverCommand) -> Result<(), Stopped> {
        for _ in 0..TRIES {
            let Some(mut place) = self.take() else {
                std::hint::spin_loop();
                continue;
            };
            let driver = place.as_mut().ok_or(Stopped)?;
            self.drives.fetch_add(1, Ordering::Relaxed);
            driver.take_last(order);
            let turn = driver.turn(true);
            self.let_go(place, turn);
            return Ok(());
        }
        self.orders.send(order)
    }

    /// Runs a command like [`ask`](Self::ask), for a caller that does not wait for the result.
    pub fn order(&self, order: DriverCommand) -> Result<(), Stopped> {
        self.ask(order)?;
        self.wake();
        Ok(())
    }

    /// Waits for outcomes and takes them.
    pub fn wait(&self, answers: &Answers, into: &mut Outcomes) {
        if answers.take(into) || (self.is_worth_looking() && self.poll_for(answers, into)) {
            return;
        }
        self.wake();
        answers.wait(into);
    }

    /// Like [`wait`](Self::wait), for a caller with many outstanding operations: sleeps between
    /// polls.
    pub fn wait_at_rest(&self, answers: &Answers, into: &mut Outcomes) {
        for _ in 0..MOST_RESTS {
            let driven = self.try_drive();
            if answers.take(into) {
                return;
            }
            if driven.is_err() {
                break;
            }
            std::thread::sleep(RESTS);
        }
        self.wake();
        answers.wait(into);
    }

    /// Returns true if polling is likely to be faster than blocking, and no other caller polls.
    fn is_worth_looking(&self) -> bool {
        let asks = self.asks.fetch_add(1, Ordering::Relaxed);
        let is_lucky =
            self.polling_score.load(Ordering::Relaxed) > 0 || asks.is_multiple_of(SELDOM);
        is_lucky && !self.is_looked_for.swap(true, Ordering::Relaxed)
    }

    fn poll_for(&self, answers: &Answers, into: &mut Outcomes) -> bool {
        let until = Instant::now() + POLL_TIME;
        let mut has_come = false;
        while !has_come && Instant::now() < until {
            match self.try_drive() {
                Ok(true) => {}
                Ok(false) => std::hint::spin_loop(),
                Err(Stopped) => break,
            }
            has_come = answers.take(into);
        }
        self.is_looked_for.store(false, Ordering::Relaxed);
        let luck = self.polling_score.load(Ordering::Relaxed);
        let luck = match has_come {
            true => (luck + 1).min(MOST_LUCK),
            false => luck.saturating_sub(MISS),
        };
        // Concurrent updates may be lost; the score is a heuristic.
        self.polling_score.store(luck, Ordering::Relaxed);
        has_come
    }

    /// Runs one turn unless another thread holds the lock. Returns true if it did.
    fn try_drive(&self) -> Result<bool, Stopped> {
        let Some(mut place) = self.take() else {
            return Ok(false);
        };
        let driver = place.as_mut().ok_or(Stopped)?;
        let turn = driver.turn(true);
        self.let_go(place, turn);
        Ok(true)
    }

    /// Returns the lock guard unless another thread holds the lock.
    fn take(&self) -> Option<MutexGuard<'_, Option<Driver>>> {
        match self.driver.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => {
                // A thread panicked during a turn, so the state may be inconsistent and is dropped.
                let mut place = poisoned.into_inner();
                *place = None;
                Some(place)
            }
        }
    }

    /// Releases the lock, and wakes the member's thread if it found the lock taken or input is
    /// left.
    fn let_go(&self, mut place: MutexGuard<'_, Option<Driver>>, turn: PollResult) {
        if turn.is_over {
            *place = None;
        }
        drop(place);
        fence(Ordering::SeqCst);
        if self.was_missed.swap(false, Ordering::SeqCst) || turn.is_cut || turn.is_over {
            self.orders.ring();
            self.wake();
        }
    }

    /// Unparks the member's thread from a nap. If it polls, no wake-up is needed.
    fn wake(&self) {
        if self.is_napping.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Runs the member's thread until the member has stopped.
    pub fn run(&self, mut poller: Poller) {
        let _ = self.thread.set(std::thread::current());
        let mut naps = SleepPolicy::new();
        let mut due = Duration::ZERO;
        loop {
            if naps.are_due(self.drives.load(Ordering::Relaxed)) {
                self.is_napping.store(true, Ordering::SeqCst);
                std::thread::park_timeout(NAP);
                self.is_napping.store(false, Ordering::SeqCst);
                due = Duration::ZERO;
            }
            let polled = poller.wait(due);
            match self.work(!naps.pay) {
                Some(next) if polled.is_ok() => due = next,
                _ => break,
            }
        }
        let place = self.driver.lock();
        *place.unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Runs turns while there is input, and a little longer if `lingers` is set. Returns the time
    /// until the next turn is due, `None` if the member has stopped.
    fn work(&self, lingers: bool) -> Option<Duration> {
        let mut looks = false;
        let mut busy = Instant::now();
        loop {
            let Some(mut place) = self.take_or_note(lingers) else {
                return Some(if lingers { LOOKS_AGAIN } else { Duration::ZERO });
            };
            let driver = place.as_mut()?;
            let turn = driver.turn(looks);
            let next_tick = driver.next_tick();
            if turn.is_over {
                *place = None;
                return None;
            }
            drop(place);
            let now = Instant::now();
            if turn.is_busy {
                busy = now;
            }
            if !turn.is_cut && (!lingers || now >= busy + LINGERS) {
                return Some(next_tick.saturating_duration_since(now));
            }
            looks = true;
        }
    }

    /// Returns the lock guard. If another thread holds the lock and `noted` is set, sets the flag
    /// that makes that thread ring.
    fn take_or_note(&self, noted: bool) -> Option<MutexGuard<'_, Option<Driver>>> {
        let place = self.take();
        if place.is_some() || !noted {
            return place;
        }
        self.was_missed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.take()
    }
}

/// Decides whether the member's thread naps.
struct SleepPolicy {
    pay: bool,
    /// Number of callers' turns at the last check, and its time.
    driven: u32,
    since: Instant,
}

impl SleepPolicy {
    fn new() -> Self {
        SleepPolicy {
            pay: false,
            driven: 0,
            since: Instant::now(),
        }
    }

    /// Returns true if the next sleep should be a nap, given the number of callers' turns so far.
    fn are_due(&mut self, drives: u32) -> bool {
        let passed = self.since.elapsed();
        if passed >= NAP {
            self.pay = OFTEN * drives.wrapping_sub(self.driven) >= passed;
            self.driven = drives;
            self.since += passed;
        }
        self.pay
    }
}
