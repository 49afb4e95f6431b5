//! Who drives a member: its own thread, or who asks for something just then.
//!
//! Two threads that wake each other cost more than most operations. So who asks drives the member itself if nobody else does, and looks for the answer for as long
//! as one on the same machine takes. The member's thread sees to all else: what others want, what takes longer, and time.
//!
//! Who has much under way would look all the time, which costs as much as what the others do for him: he sleeps a little between two looks.
//!
//! **Nothing is left lying.** Orders wait in a queue that each turn begins with, whoever takes it. Who hands one in while another thread drives rings; the member's thread that finds
//! another one driving notes that, looks once more, and sleeps; who has driven looks at the note when it has let go, and rings. So does who has left something
//! for the next turn, and who looks for an answer no longer ends a nap.
//!
//! **The member's thread takes naps.** While those who ask drive again and again, each answer that comes would wake it for nothing. Then it sleeps for so short a time that it does not
//! matter if they suddenly stop, instead of polling.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use ardea_network::exchange::Poller;

use crate::node::asker::{Answers, Outcomes};
use crate::node::driver::{Driver, Turn};
use crate::node::orders::{Order, Orders, Stopped};

/// For how long who asks looks for the answer before it sleeps: a little longer than another member takes that has to be woken first.
const LOOKS_FOR: Duration = Duration::from_micros(200);

/// How long who has much under way sleeps before it looks again, and after how many times in vain it sleeps until it is woken.
const RESTS: Duration = Duration::from_micros(50);
const MOST_RESTS: u32 = 50;

/// For how long the member's thread looks whether more comes before it sleeps.
const LINGERS: Duration = Duration::from_micros(20);

/// How long a nap is, and how long on average it takes those who ask to drive again if naps are to pay.
const NAP: Duration = Duration::from_micros(150);
const OFTEN: Duration = Duration::from_micros(100);

/// How long the member's thread sleeps at most while another one drives.
const LOOKS_AGAIN: Duration = Duration::from_millis(1);

/// How often a thread tries to drive that finds another one doing it: as long as a short turn takes.
const TRIES: u32 = 100;

/// How much luck is remembered, what a miss costs, and how often who has none tries all the same.
const MOST_LUCK: u32 = 64;
const MISS: u32 = 4;
const SELDOM: u32 = 64;

/// Where a member is driven.
pub(crate) struct Helm {
    driver: Mutex<Option<Driver>>,
    orders: Orders,
    thread: OnceLock<Thread>,
    is_napping: AtomicBool,
    /// The member's thread has found another one driving.
    was_missed: AtomicBool,
    /// How often those who ask have driven.
    drives: AtomicU32,
    /// Somebody looks for an answer.
    is_looked_for: AtomicBool,
    /// Rises when looking was worth it, and falls when it was not.
    luck: AtomicU32,
    asks: AtomicU32,
}

impl Helm {
    pub fn new(driver: Driver, orders: Orders) -> Self {
        Helm {
            driver: Mutex::new(Some(driver)),
            orders,
            thread: OnceLock::new(),
            is_napping: AtomicBool::new(false),
            was_missed: AtomicBool::new(false),
            drives: AtomicU32::new(0),
            is_looked_for: AtomicBool::new(false),
            luck: AtomicU32::new(MOST_LUCK / 2),
            asks: AtomicU32::new(0),
        }
    }

    /// Where orders are handed in by who must not drive.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Has it done: by this thread, if no other drives. Who asks has to [wait](Self::wait) for the answer.
    pub fn ask(&self, order: Order) -> Result<(), Stopped> {
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

    /// Has it done, for who doesn't wait for it here.
    pub fn order(&self, order: Order) -> Result<(), Stopped> {
        self.ask(order)?;
        self.wake();
        Ok(())
    }

    /// Waits until something has come, and takes it.
    pub fn wait(&self, answers: &Answers, into: &mut Outcomes) {
        if answers.take(into) || (self.is_worth_looking() && self.look_for(answers, into)) {
            return;
        }
        self.wake();
        answers.wait(into);
    }

    /// As [`wait`](Self::wait), for who has so much under way that others are busy with it for long: to look for answers all the while would cost as much as what is
    /// done for them.
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

    /// Whether answers come so quickly that looking for them is quicker than sleeping. One thread looks: the others sleep.
    fn is_worth_looking(&self) -> bool {
        let asks = self.asks.fetch_add(1, Ordering::Relaxed);
        let is_lucky = self.luck.load(Ordering::Relaxed) > 0 || asks.is_multiple_of(SELDOM);
        is_lucky && !self.is_looked_for.swap(true, Ordering::Relaxed)
    }

    fn look_for(&self, answers: &Answers, into: &mut Outcomes) -> bool {
        let until = Instant::now() + LOOKS_FOR;
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
        let luck = self.luck.load(Ordering::Relaxed);
        let luck = match has_come {
            true => (luck + 1).min(MOST_LUCK),
            false => luck.saturating_sub(MISS),
        };
        // Of several at once one counts: it is a guess anyway.
        self.luck.store(luck, Ordering::Relaxed);
        has_come
    }

    /// Drives once, unless another thread does; whether it has.
    fn try_drive(&self) -> Result<bool, Stopped> {
        let Some(mut place) = self.take() else {
            return Ok(false);
        };
        let driver = place.as_mut().ok_or(Stopped)?;
        let turn = driver.turn(true);
        self.let_go(place, turn);
        Ok(true)
    }

    /// The place of who drives, unless another thread has it.
    fn take(&self) -> Option<MutexGuard<'_, Option<Driver>>> {
        match self.driver.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => {
                // Somebody has panicked in the middle of something: what it has left is not to be trusted.
                let mut place = poisoned.into_inner();
                *place = None;
                Some(place)
            }
        }
    }

    /// This thread drives no more.
    fn let_go(&self, mut place: MutexGuard<'_, Option<Driver>>, turn: Turn) {
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

    /// The member's thread is to see to what is under way. If it polls it does that already.
    fn wake(&self) {
        if self.is_napping.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// What the member's thread does until the member has stopped.
    pub fn run(&self, mut poller: Poller) {
        let _ = self.thread.set(std::thread::current());
        let mut naps = Naps::new();
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

    /// Drives while there is something to do, and a little longer if it `lingers`; for how long nothing is due then. None if the member has stopped.
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

    /// The place of who drives. If another thread has it that is `noted`, and it rings when it has let go.
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

/// Whether naps pay.
struct Naps {
    pay: bool,
    /// How often those who ask had driven when that was last looked at, and when it was.
    driven: u32,
    since: Instant,
}

impl Naps {
    fn new() -> Self {
        Naps {
            pay: false,
            driven: 0,
            since: Instant::now(),
        }
    }

    /// Whether another one pays, now that they have driven so often.
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
