//! Reconciliation of hosts with the calls of the leader: decides which host retains which
//! container, and places the containers that no host has.

use std::collections::BTreeMap;

use ardea_coordination::control::{ContainerRequest, Order, WorkerId};
use ardea_coordination::packing::{ContainerId, MilliCores, Resources};
use ardea_core::{Error, ErrorCode, Result};

use super::container_table::{ContainerTable, StaleIncarnation};
use super::job::Shared;
use super::message::{HostInventory, RunnerRequest, RunnerResponse};
use super::placement::{Candidate, place};
use crate::runner::ContainerEntry;

/// The inventories of hosts, and the hosts that did not answer.
pub(super) struct HostInventories {
    pub(super) stocks: BTreeMap<String, HostInventory>,
    pub(super) silent: Vec<(String, Error)>,
    /// The incarnations that were replaced by later ones on other hosts.
    stale: Vec<StaleIncarnation>,
}

impl Shared {
    /// Makes the hosts run exactly these containers, on any hosts.
    pub(super) async fn have(&self, order: Order, requests: Vec<ContainerRequest>) -> Result<()> {
        let _turn = self.turn.lock().await;
        {
            let mut board = self.table();
            if order < board.newest || board.killed {
                return Err(superseded());
            }
            board.newest = order;
            board.wanted = requests
                .into_iter()
                .map(|request| (request.id, request))
                .collect();
        }
        let survey = self.request_inventories().await;
        let is_silent = |host: &str| survey.silent.iter().any(|(silent, _)| silent == host);
        let (mut there, missing) = self.table().divide(&survey.stocks);
        let mut errors = Vec::new();
        // Running containers need not be started again.
        let missing = missing
            .into_iter()
            .filter(|request| !self.table().runs_unreported(request.id, is_silent))
            .collect();
        let (placeable, unclear) = self.split_placeable(order, missing, &survey);
        errors.extend(unclear);
        let candidates = self.candidates(&survey.stocks, &there);
        let (placed, refused) = place(placeable.clone(), candidates);
        errors.extend(refused.into_iter().map(Error::from));
        for request in placeable {
            if let Some(host) = placed.get(&request.id) {
                there.entry(host.clone()).or_default().push(request);
            }
        }
        // Hosts that don't answer now get the call when they reconnect.
        let told = |host: &str| !is_silent(host);
        errors.extend(self.send_containers(order, there, told).await);
        for stale in survey.stale {
            self.release(stale).await;
        }
        first_of(errors)
    }

    /// Sends each host the list of its containers. Returns the errors of the failed requests.
    async fn send_containers(
        &self,
        order: Order,
        there: BTreeMap<String, Vec<ContainerRequest>>,
        is_told: impl Fn(&str) -> bool,
    ) -> Vec<Error> {
        let floor = self.table().floor();
        let ids = |host: &str| {
            let wanted = there.get(host).into_iter().flatten();
            wanted.map(|request| request.id)
        };
        for host in there.keys() {
            ids(host).for_each(|id| self.table().may_take(host, id));
        }
        // Hosts without containers get the call too, so that they refuse older calls.
        let have = |host: &str| RunnerRequest::Have {
            order,
            wanted: there.get(host).cloned().unwrap_or_default(),
            floor,
        };
        let (done, failed) = self.request_from(is_told, have).await;
        for (host, _) in done {
            self.table().set_containers(&host, ids(&host));
        }
        failed.into_iter().map(|(_, error)| error).collect()
    }

    /// Restarts a container on its host, or on another host if its host is lost or drained. Returns
    /// the new incarnation.
    pub(super) async fn restart(&self, order: Order, id: ContainerId) -> Result<u64> {
        let (host, request, floor) = self.choose_restart_host(order, id).await?;
        let question = RunnerRequest::Restart {
            order,
            request,
            floor,
        };
        self.table().may_take(&host, id);
        let answer = match self.link(&host) {
            Some(link) => link.request(question).await,
            None => Err(Error::new(
                ErrorCode::SchedulerUnavailable,
                format!("host {host} is lost, container {id} has to go elsewhere"),
            )),
        };
        self.table().reserved.remove(&id);
        let RunnerResponse::Restarted(incarnation) = answer? else {
            return Err(Error::new(
                ErrorCode::SchedulerUnavailable,
                format!("the runner of host {host} sent an unexpected response"),
            ));
        };
        let worker = WorkerId {
            container: id,
            incarnation,
        };
        let stale = self.table().record_incarnation(&host, worker);
        if let Some(stale) = stale {
            self.release(stale).await;
        }
        Ok(incarnation)
    }

    async fn choose_restart_host(
        &self,
        order: Order,
        id: ContainerId,
    ) -> Result<(String, ContainerRequest, u64)> {
        let _turn = self.turn.lock().await;
        let (request, floor) = {
            let board = self.table();
            if order.epoch < board.newest.epoch || board.killed {
                return Err(superseded());
            }
            (board.wanted.get(&id).cloned(), board.floor())
        };
        let known = self.table().host_of(id);
        if let (Some(request), Some(host)) = (&request, known)
            && !self.drained().contains(&host)
        {
            return Ok((host, request.clone(), floor));
        }
        let survey = self.request_inventories().await;
        let held = survey.stocks.values().flat_map(|stock| &stock.held);
        let request = request.or_else(|| {
            let mut held = held.filter(|held| held.request.id == id);
            held.next().map(|held| held.request.clone())
        });
        let request = request.ok_or_else(|| {
            Error::new(
                ErrorCode::NoSuchContainer,
                format!("container {id} was not requested"),
            )
        })?;
        let floor = self.table().floor();
        let known = self.table().host_of(id);
        if let Some(host) = known {
            let elsewhere = self.move_away(&host, &request, &survey).await?;
            if let Some(elsewhere) = &elsewhere {
                let reserved = (elsewhere.clone(), request.required);
                self.table().reserved.insert(id, reserved);
            }
            return Ok((elsewhere.unwrap_or(host), request, floor));
        }
        let (placeable, unclear) = self.split_placeable(order, vec![request.clone()], &survey);
        first_of(unclear)?;
        let (mut placed, refused) =
            place(placeable, self.candidates(&survey.stocks, &BTreeMap::new()));
        first_of(refused.into_iter().map(Error::from).collect())?;
        let host = placed.remove(&id).ok_or_else(superseded)?;
        let reserved = (host.clone(), request.required);
        self.table().reserved.insert(id, reserved);
        Ok((host, request, floor))
    }

    /// Stops a container on its host if that host is drained and another host has room. Returns
    /// that other host, or `None` if the container was not stopped.
    async fn move_away(
        &self,
        host: &str,
        request: &ContainerRequest,
        survey: &HostInventories,
    ) -> Result<Option<String>> {
        if !self.drained().contains(host) {
            return Ok(None);
        }
        let id = request.id;
        let candidates = self.candidates(&survey.stocks, &BTreeMap::new());
        let (mut placed, _) = place(vec![request.clone()], candidates);
        let up_to = self.table().place(id).map(|place| place.incarnation);
        let (Some(elsewhere), Some(up_to)) = (placed.remove(&id), up_to) else {
            return Ok(None);
        };
        // While the host does not answer, the container may still run on it.
        match self.link(host) {
            Some(link) => link.request(RunnerRequest::Release { id, up_to }).await?,
            None => return Ok(None),
        };
        Ok(Some(elsewhere))
    }

    /// Stops all containers on all reachable hosts.
    pub(super) async fn kill(&self, order: Order) -> Result<()> {
        let _turn = self.turn.lock().await;
        {
            let mut board = self.table();
            if order < board.newest {
                return Err(superseded());
            }
            board.newest = order;
            board.wanted.clear();
        }
        let (_, failed) = self.request_all(|_| RunnerRequest::Kill { order }).await;
        let was_overtaken = failed
            .iter()
            .any(|(_, error)| error.code() == ErrorCode::Superseded);
        self.table().killed = !was_overtaken;
        first_of(failed.into_iter().map(|(_, error)| error).collect())
    }

    /// Requests the inventory of all hosts.
    pub(super) async fn request_inventories(&self) -> HostInventories {
        let (answers, silent) = self.request_all(|_| RunnerRequest::Stock).await;
        let stocks = answers
            .into_iter()
            .filter_map(|(host, answer)| match answer {
                RunnerResponse::Stock(stock) => Some((host, stock)),
                _ => None,
            });
        let stocks: BTreeMap<String, HostInventory> = stocks.collect();
        let mut board = self.table();
        let mut stale = Vec::new();
        for (host, stock) in &stocks {
            stale.extend(
                stock
                    .held
                    .iter()
                    .filter_map(|held| board.found_held(host, held)),
            );
        }
        drop(board);
        HostInventories {
            stocks,
            silent,
            stale,
        }
    }

    /// Splits missing containers into those that can be placed, and errors for the others. A
    /// missing container may be on a host that does not answer, or that has not registered again
    /// after an outage of the metadata store. The container can be placed if its last host is lost,
    /// or if it can be on none of these hosts.
    fn split_placeable(
        &self,
        order: Order,
        missing: Vec<ContainerRequest>,
        survey: &HostInventories,
    ) -> (Vec<ContainerRequest>, Vec<Error>) {
        let may_miss_hosts = self.may_miss_hosts(order);
        let board = self.table();
        let (mut placeable, mut unclear) = (Vec::new(), Vec::new());
        for request in missing {
            let id = request.id;
            let is_lost = board.place(id).is_some_and(|place| place.host.is_none());
            let mut silent = survey.silent.iter();
            let silent = silent.find(|(host, _)| board.may_be_at(id, host));
            let (place, why) = match silent {
                _ if is_lost => ("", None),
                Some((_, why)) => ("does not answer", Some(why)),
                None if may_miss_hosts => ("has not registered again", None),
                None => ("", None),
            };
            if place.is_empty() {
                placeable.push(request);
                continue;
            }
            let what = format!("container {id} may be on a host that {place}");
            let error = Error::new(ErrorCode::SchedulerUnavailable, what);
            let error = match why {
                Some(why) => error.because(why.without_hint()),
                None => error,
            };
            unclear.push(error.hint("it is started elsewhere when the host is lost"));
        }
        (placeable, unclear)
    }

    pub(super) fn candidates(
        &self,
        stocks: &BTreeMap<String, HostInventory>,
        there: &BTreeMap<String, Vec<ContainerRequest>>,
    ) -> Vec<Candidate> {
        let drained = self.drained().clone();
        let board = self.table();
        let candidate = |(host, stock): (&String, &HostInventory)| {
            let reserved = board.reserved.values().filter(|(at, _)| at == host);
            let free = reserved.fold(less(stock.total, stock.used), |free, (_, needs)| {
                less(free, *needs)
            });
            let containers = there.get(host).map_or(stock.held.len(), Vec::len);
            Candidate {
                id: host.clone(),
                free,
                total: stock.total,
                attributes: stock.attributes.clone(),
                containers,
                is_drained: drained.contains(host),
            }
        };
        stocks.iter().map(candidate).collect()
    }
}

impl ContainerTable {
    /// Records a container that a host reports. Returns the incarnation that became stale by this,
    /// if any.
    fn found_held(&mut self, host: &str, held: &ContainerEntry) -> Option<StaleIncarnation> {
        let worker = WorkerId {
            container: held.request.id,
            incarnation: held.incarnation,
        };
        // Incarnation zero means that the container was requested on the host but never started.
        (held.incarnation > 0).then(|| self.record_incarnation(host, worker))?
    }

    /// Returns the containers that a host has and must retain.
    pub(super) fn retained_requests(
        &mut self,
        host: &str,
        held: &[ContainerEntry],
    ) -> Vec<ContainerRequest> {
        let mut rightful = Vec::new();
        for held in held {
            let stale = self.found_held(host, held);
            let is_here = self.host_of(held.request.id).is_none_or(|at| at == host);
            if stale.is_none() && is_here {
                rightful.extend(self.wanted.get(&held.request.id).cloned());
            }
        }
        rightful
    }

    /// Returns the requested containers that stay on each host, and those that no host has.
    pub(super) fn divide(
        &self,
        stocks: &BTreeMap<String, HostInventory>,
    ) -> (
        BTreeMap<String, Vec<ContainerRequest>>,
        Vec<ContainerRequest>,
    ) {
        let mut there: BTreeMap<String, Vec<ContainerRequest>> = BTreeMap::new();
        let mut missing = Vec::new();
        for (id, request) in &self.wanted {
            let known = self.place(*id).map_or(0, |place| place.incarnation);
            let holders = stocks.iter().flat_map(|(host, stock)| {
                let held = stock.held.iter().filter(|held| held.request.id == *id);
                held.map(move |held| (held.incarnation, host))
            });
            match holders
                .filter(|(incarnation, _)| *incarnation >= known)
                .max()
            {
                Some((_, host)) => there.entry(host.clone()).or_default().push(request.clone()),
                None => missing.push(request.clone()),
            }
        }
        (there, missing)
    }

    /// Returns the host on which a container runs, or is being started.
    fn host_of(&self, id: ContainerId) -> Option<String> {
        let reserved = self.reserved.get(&id).map(|(host, _)| host.clone());
        reserved.or_else(|| self.place(id)?.host.clone())
    }
}

fn less(from: Resources, taken: Resources) -> Resources {
    Resources {
        cpu: MilliCores(from.cpu.0.saturating_sub(taken.cpu.0)),
        memory_bytes: from.memory_bytes.saturating_sub(taken.memory_bytes),
        disk_bytes: from.disk_bytes.saturating_sub(taken.disk_bytes),
    }
}

/// Returns the first error, with the number of errors. The error of a superseded call takes
/// precedence over all others.
fn first_of(mut errors: Vec<Error>) -> Result<()> {
    errors.sort_by_key(|error| error.code() != ErrorCode::Superseded);
    let count = errors.len();
    match errors.into_iter().next() {
        None => Ok(()),
        Some(only) if count == 1 => Err(only),
        Some(first) => {
            let what = format!("{count} containers or hosts failed, one of them");
            Err(Error::new(first.code(), what).because(first))
        }
    }
}

fn superseded() -> Error {
    Error::new(
        ErrorCode::Superseded,
        "this call to the scheduler is not carried out: a newer one was received",
    )
}
