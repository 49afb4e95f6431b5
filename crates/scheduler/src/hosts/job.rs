//! One job's scheduler on the hosts of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::control::{ContainerRequest, Displaced, MasterEpoch, Order, WorkerId};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use tokio::sync::{Mutex as TurnMutex, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::Hosts;
use super::board::{Board, Stale};
use super::drains::Drains;
use super::link::{Link, News};
use super::message::{Answer, Question};
use super::roster::{Change, Roster};
use crate::{
    ContainerEvent, ContainerEvents, EventFeed, LaunchPlan, LogPiece, LogRequest, Pending,
    RunningContainer, Scheduler, container_events,
};

/// One job's scheduler. When it is dropped, its connections are closed: until then what containers wrote can be read, though it is closed.
#[derive(Debug)]
pub(super) struct HostsJob {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

/// What the scheduler and its tasks have in common.
#[derive(Debug)]
pub(super) struct Shared {
    kind: Hosts,
    launch: Arc<LaunchPlan>,
    /// Held while it is decided where containers go.
    pub(super) turn: TurnMutex<()>,
    begun: Instant,
    board: Mutex<Board>,
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    feed: Mutex<Option<EventFeed>>,
    /// The hosts that are drained.
    drained: Mutex<BTreeSet<String>>,
}

impl HostsJob {
    /// Finds the hosts that there are, and begins to ask them what runs of the job.
    pub(super) async fn begin(kind: Hosts, launch: LaunchPlan) -> Result<(Self, ContainerEvents)> {
        let roster = Roster::begin(Arc::clone(&kind.state), kind.lost_after);
        let mut roster = roster.await?;
        let drains = Drains::new(Arc::clone(&kind.state));
        let mut drains = drains.followed().await?;
        let (feed, events) = container_events();
        let shared = Arc::new(Shared {
            kind,
            launch: Arc::new(launch),
            turn: TurnMutex::default(),
            begun: Instant::now(),
            board: Mutex::default(),
            links: Mutex::default(),
            feed: Mutex::new(Some(feed)),
            drained: Mutex::new(drains.next().await),
        });
        let (tell, news) = mpsc::unbounded_channel();
        shared.change(roster.next().await, &tell);
        let follow = {
            let shared = Arc::clone(&shared);
            async move {
                loop {
                    shared.change(roster.next().await, &tell);
                }
            }
        };
        let follow_drains = {
            let shared = Arc::clone(&shared);
            async move {
                loop {
                    let drained = drains.next().await;
                    *shared.drained() = drained;
                }
            }
        };
        let tasks = vec![
            tokio::spawn(follow),
            tokio::spawn(follow_drains),
            tokio::spawn(hear(Arc::clone(&shared), news)),
        ];
        Ok((HostsJob { shared, tasks }, events))
    }

    fn end(&self) {
        for task in &self.tasks {
            task.abort();
        }
        *lock(&self.shared.feed) = None;
    }
}

impl Drop for HostsJob {
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes in what the hosts tell.
async fn hear(shared: Arc<Shared>, mut news: mpsc::UnboundedReceiver<(String, News)>) {
    while let Some((host, news)) = news.recv().await {
        match news {
            News::Event(event) => {
                let (event, stale) = shared.board().on(&host, event);
                if let Some(event) = event {
                    shared.tell(event);
                }
                if let Some(stale) = stale {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { shared.release(stale).await });
                }
            }
            News::Connected => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { shared.align(&host).await });
            }
        }
    }
}

impl Shared {
    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        lock(&self.board)
    }

    /// The hosts that are drained.
    pub(super) fn drained(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.drained)
    }

    pub(super) fn links(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Link>>> {
        lock(&self.links)
    }

    pub(super) fn link(&self, host: &str) -> Option<Arc<Link>> {
        self.links().get(host).cloned()
    }

    /// Whether hosts may be missing that were there when an earlier master led: a scheduler that has just begun has not seen them.
    pub(super) fn may_miss_hosts(&self, order: Order) -> bool {
        order.epoch > MasterEpoch(1) && self.begun.elapsed() < self.kind.gather_within
    }

    fn tell(&self, event: ContainerEvent) {
        if let Some(feed) = &*lock(&self.feed) {
            feed.tell(event);
        }
    }

    fn change(&self, changes: Vec<Change>, tell: &mpsc::UnboundedSender<(String, News)>) {
        for change in changes {
            match change {
                Change::Come(host) => {
                    let (launch, state) = (self.launch.clone(), self.kind.state.clone());
                    let security = self.kind.security.clone();
                    let link = Link::new(&host, launch, state, security, tell.clone());
                    self.links().insert(host, Arc::new(link));
                }
                Change::Lost(host) => {
                    self.links().remove(&host);
                    let ends = self.board().lost(&host);
                    ends.into_iter().for_each(|end| self.tell(end));
                }
            }
        }
    }

    /// Has a host give up a life that was replaced. If it can't be told now, it is when it is connected again.
    pub(super) async fn release(&self, stale: Stale) {
        if let Some(link) = self.link(&stale.host) {
            let (id, up_to) = (stale.worker.container, stale.worker.incarnation);
            let _ = link.ask(Question::Release { id, up_to }).await;
        }
    }

    /// Tells a host that has just come what the newest call was, so that it holds no more than it should, and obeys no older one.
    async fn align(&self, host: &str) {
        let _turn = self.turn.lock().await;
        let Some(link) = self.link(host) else { return };
        let (order, killed, floor) = {
            let board = self.board();
            (board.newest, board.killed, board.floor())
        };
        if killed {
            let _ = link.ask(Question::Kill { order }).await;
        } else if order != Order::default()
            && let Ok(Answer::Stock(stock)) = link.ask(Question::Stock).await
        {
            let wanted = self.board().rightful(host, &stock.held);
            let ids: Vec<_> = wanted.iter().map(|request| request.id).collect();
            let have = Question::Have {
                order,
                wanted,
                floor,
            };
            if let Ok(Answer::Done) = link.ask(have).await {
                self.board().obeyed(host, ids);
            }
        }
    }

    /// Asks all hosts the same: what they answer, and why others don't.
    pub(super) async fn ask_all(
        &self,
        question: impl Fn(&str) -> Question,
    ) -> (Vec<(String, Answer)>, Vec<(String, Error)>) {
        self.ask_some(|_| true, question).await
    }

    /// The same of some hosts.
    pub(super) async fn ask_some(
        &self,
        is_asked: impl Fn(&str) -> bool,
        question: impl Fn(&str) -> Question,
    ) -> (Vec<(String, Answer)>, Vec<(String, Error)>) {
        let mut asking = JoinSet::new();
        let links = self.links().clone();
        for (host, link) in links.into_iter().filter(|(host, _)| is_asked(host)) {
            let question = question(&host);
            asking.spawn(async move { (host, link.ask(question).await) });
        }
        let (mut answers, mut silent) = (Vec::new(), Vec::new());
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok((host, Ok(answer))) => answers.push((host, answer)),
                Ok((host, Err(error))) => silent.push((host, error)),
                // Only a panic ends such a task, and it has been told.
                Err(_) => {}
            }
        }
        answers.sort_by(|(one, _), (other, _)| one.cmp(other));
        (answers, silent)
    }
}

impl Scheduler for HostsJob {
    fn on_schedule(&self, order: Order, containers: Vec<ContainerRequest>) -> Pending<'_, ()> {
        Box::pin(self.shared.have(order, containers))
    }

    fn on_restart(&self, order: Order, container: ContainerId) -> Pending<'_, u64> {
        Box::pin(self.shared.restart(order, container))
    }

    fn on_kill(&self, order: Order) -> Pending<'_, ()> {
        Box::pin(self.shared.kill(order))
    }

    fn heard(&self, workers: &[WorkerId]) {
        let heard = workers.iter();
        let heard = heard.map(|worker| (worker.container, worker.incarnation));
        self.shared.board().heard = heard.collect();
    }

    fn displaced(&self) -> Pending<'_, Vec<Displaced>> {
        Box::pin(self.shared.displaced())
    }

    fn containers(&self) -> Pending<'_, Vec<RunningContainer>> {
        Box::pin(async {
            let (answers, _) = self.shared.ask_all(|_| Question::Containers).await;
            let mut latest = BTreeMap::new();
            for (host, answer) in answers {
                let Answer::Containers(running) = answer else {
                    continue;
                };
                for mut running in running {
                    running.host_name = Some(host.clone());
                    let known = latest.entry(running.worker.container);
                    let known = known.or_insert_with(|| running.clone());
                    if running.worker > known.worker {
                        *known = running;
                    }
                }
            }
            Ok(latest.into_values().collect())
        })
    }

    fn logs(&self, container: ContainerId, request: LogRequest) -> Pending<'_, LogPiece> {
        Box::pin(self.shared.logs(container, request))
    }

    fn close(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.end();
            Ok(())
        })
    }
}

impl Shared {
    async fn logs(&self, id: ContainerId, request: LogRequest) -> Result<LogPiece> {
        let there = self.board().place(id).and_then(|place| place.host.clone());
        let mut hosts: Vec<_> = self.links().keys().cloned().collect();
        // Where it was last, then wherever it has been before.
        hosts.sort_by_key(|host| Some(host) != there.as_ref());
        let mut failed = Error::new(
            ErrorCode::NoSuchContainer,
            format!("no host knows of a container {id} of {}", self.launch.job()),
        );
        for host in hosts {
            let Some(link) = self.link(&host) else {
                continue;
            };
            let request = request.clone();
            match link.ask(Question::Logs { id, request }).await {
                Ok(Answer::Logs(piece)) => return Ok(piece),
                Err(error) if error.code() != ErrorCode::NoSuchContainer => failed = error,
                _ => {}
            }
        }
        Err(failed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
