//! One job's scheduler on the hosts of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ardea_coordination::control::{
    ContainerRequest, ContainersToMove, MasterEpoch, Order, WorkerId,
};
use ardea_coordination::packing::ContainerId;
use ardea_core::{Error, ErrorCode, Result};
use tokio::sync::{Mutex as TurnMutex, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::Hosts;
use super::container_table::{ContainerTable, StaleIncarnation};
use super::drains::Drains;
use super::link::{Link, LinkEvent};
use super::membership::{Change, HostMembership};
use super::message::{RunnerRequest, RunnerResponse};
use crate::{
    ContainerEvent, ContainerEvents, EventFeed, LaunchPlan, LogPiece, LogRequest, Pending,
    RunningContainer, Scheduler, container_events,
};

/// One job's scheduler. Its connections to hosts are closed on drop, not by `close`, so that logs
/// can be read after `close`.
#[derive(Debug)]
pub(super) struct HostsJob {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

/// The state shared by the scheduler and its tasks.
#[derive(Debug)]
pub(super) struct Shared {
    kind: Hosts,
    launch: Arc<LaunchPlan>,
    /// The lock that is held while containers are placed.
    pub(super) turn: TurnMutex<()>,
    begun: Instant,
    board: Mutex<ContainerTable>,
    links: Mutex<BTreeMap<String, Arc<Link>>>,
    feed: Mutex<Option<EventFeed>>,
    /// The drained hosts.
    drained: Mutex<BTreeSet<String>>,
}

impl HostsJob {
    /// Creates the scheduler of a job: finds the registered hosts, and starts to connect to them.
    pub(super) async fn begin(kind: Hosts, launch: LaunchPlan) -> Result<(Self, ContainerEvents)> {
        let roster = HostMembership::begin(Arc::clone(&kind.state), kind.lost_after);
        let mut roster = roster.await?;
        let drains = Drains::new(Arc::clone(&kind.state));
        let mut drains = drains.watch().await?;
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
            tokio::spawn(handle_link_events(Arc::clone(&shared), news)),
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

/// Handles the events of hosts.
async fn handle_link_events(
    shared: Arc<Shared>,
    mut news: mpsc::UnboundedReceiver<(String, LinkEvent)>,
) {
    while let Some((host, news)) = news.recv().await {
        match news {
            LinkEvent::Event(event) => {
                let (event, stale) = shared.table().on(&host, event);
                if let Some(event) = event {
                    shared.send_event(event);
                }
                if let Some(stale) = stale {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move { shared.release(stale).await });
                }
            }
            LinkEvent::Connected => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { shared.align(&host).await });
            }
        }
    }
}

impl Shared {
    pub(super) fn table(&self) -> MutexGuard<'_, ContainerTable> {
        lock(&self.board)
    }

    /// Locks the set of drained hosts.
    pub(super) fn drained(&self) -> MutexGuard<'_, BTreeSet<String>> {
        lock(&self.drained)
    }

    pub(super) fn links(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Link>>> {
        lock(&self.links)
    }

    pub(super) fn link(&self, host: &str) -> Option<Arc<Link>> {
        self.links().get(host).cloned()
    }

    /// Returns true if hosts with containers may not have registered yet. That is so while the
    /// scheduler of a second or later leader has just begun.
    pub(super) fn may_miss_hosts(&self, order: Order) -> bool {
        order.epoch > MasterEpoch(1) && self.begun.elapsed() < self.kind.gather_within
    }

    fn send_event(&self, event: ContainerEvent) {
        if let Some(feed) = &*lock(&self.feed) {
            feed.send(event);
        }
    }

    fn change(&self, changes: Vec<Change>, tell: &mpsc::UnboundedSender<(String, LinkEvent)>) {
        for change in changes {
            match change {
                Change::Registered(host) => {
                    let (launch, state) = (self.launch.clone(), self.kind.state.clone());
                    let security = self.kind.security.clone();
                    let link = Link::new(&host, launch, state, security, tell.clone());
                    self.links().insert(host, Arc::new(link));
                }
                Change::Lost(host) => {
                    self.links().remove(&host);
                    let ends = self.table().lost(&host);
                    ends.into_iter().for_each(|end| self.send_event(end));
                }
            }
        }
    }

    /// Requests a host to stop an incarnation that was replaced. A failure is ignored; the request
    /// is repeated when the host reconnects.
    pub(super) async fn release(&self, stale: StaleIncarnation) {
        if let Some(link) = self.link(&stale.host) {
            let (id, up_to) = (stale.worker.container, stale.worker.incarnation);
            let _ = link.request(RunnerRequest::Release { id, up_to }).await;
        }
    }

    /// Sends the newest call to a host that has just connected. The host then stops surplus
    /// containers and refuses older calls.
    async fn align(&self, host: &str) {
        let _turn = self.turn.lock().await;
        let Some(link) = self.link(host) else { return };
        let (order, killed, floor) = {
            let board = self.table();
            (board.newest, board.killed, board.floor())
        };
        if killed {
            let _ = link.request(RunnerRequest::Kill { order }).await;
        } else if order != Order::default()
            && let Ok(RunnerResponse::Stock(stock)) = link.request(RunnerRequest::Stock).await
        {
            let wanted = self.table().retained_requests(host, &stock.held);
            let ids: Vec<_> = wanted.iter().map(|request| request.id).collect();
            let have = RunnerRequest::Have {
                order,
                wanted,
                floor,
            };
            if let Ok(RunnerResponse::Done) = link.request(have).await {
                self.table().set_containers(host, ids);
            }
        }
    }

    /// Sends a request to all hosts. Returns their answers and the errors of those that failed.
    pub(super) async fn request_all(
        &self,
        question: impl Fn(&str) -> RunnerRequest,
    ) -> (Vec<(String, RunnerResponse)>, Vec<(String, Error)>) {
        self.request_from(|_| true, question).await
    }

    /// Sends a request to the hosts for which `is_asked` is true; see
    /// [`request_all`](Self::request_all).
    pub(super) async fn request_from(
        &self,
        is_asked: impl Fn(&str) -> bool,
        question: impl Fn(&str) -> RunnerRequest,
    ) -> (Vec<(String, RunnerResponse)>, Vec<(String, Error)>) {
        let mut asking = JoinSet::new();
        let links = self.links().clone();
        for (host, link) in links.into_iter().filter(|(host, _)| is_asked(host)) {
            let question = question(&host);
            asking.spawn(async move { (host, link.request(question).await) });
        }
        let (mut answers, mut silent) = (Vec::new(), Vec::new());
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok((host, Ok(answer))) => answers.push((host, answer)),
                Ok((host, Err(error))) => silent.push((host, error)),
                // Only a panic ends the task of a request without a result, and the panic has been
                // reported.
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

    fn on_live_workers(&self, workers: &[WorkerId]) {
        let heard = workers.iter();
        let heard = heard.map(|worker| (worker.container, worker.incarnation));
        self.shared.table().live_incarnations = heard.collect();
    }

    fn displaced(&self) -> Pending<'_, Vec<ContainersToMove>> {
        Box::pin(self.shared.displaced())
    }

    fn containers(&self) -> Pending<'_, Vec<RunningContainer>> {
        Box::pin(async {
            let (answers, _) = self.shared.request_all(|_| RunnerRequest::Containers).await;
            let mut latest = BTreeMap::new();
            for (host, answer) in answers {
                let RunnerResponse::Containers(running) = answer else {
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
        let there = self.table().place(id).and_then(|place| place.host.clone());
        let mut hosts: Vec<_> = self.links().keys().cloned().collect();
        // The last known host first, then all others.
        hosts.sort_by_key(|host| Some(host) != there.as_ref());
        let mut failed = Error::new(
            ErrorCode::NoSuchContainer,
            format!("no host has a container {id} of {}", self.launch.job()),
        );
        for host in hosts {
            let Some(link) = self.link(&host) else {
                continue;
            };
            let request = request.clone();
            match link.request(RunnerRequest::Logs { id, request }).await {
                Ok(RunnerResponse::Logs(piece)) => return Ok(piece),
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
