//! What the calls of a job's master mean for hosts: who keeps which container, and where the others go.

use std::collections::BTreeMap;

use ardea_coordination::control::{ContainerRequest, Order, WorkerId};
use ardea_coordination::packing::{ContainerId, MilliCores, Resources};
use ardea_core::{Error, ErrorCode, Result};

use super::board::{Board, Stale};
use super::job::Shared;
use super::message::{Answer, Question, Stock};
use super::placement::{Candidate, place};
use crate::runner::Held;

/// What hosts hold, and which of them don't say.
pub(super) struct Survey {
    pub(super) stocks: BTreeMap<String, Stock>,
    pub(super) silent: Vec<(String, Error)>,
    /// Lives that were replaced by later ones elsewhere.
    stale: Vec<Stale>,
}

impl Shared {
    /// Has exactly these containers, somewhere.
    pub(super) async fn have(&self, order: Order, requests: Vec<ContainerRequest>) -> Result<()> {
        let _turn = self.turn.lock().await;
        {
            let mut board = self.board();
            if order < board.newest || board.killed {
                return Err(superseded());
            }
            board.newest = order;
            board.wanted = requests
                .into_iter()
                .map(|request| (request.id, request))
                .collect();
        }
        let survey = self.survey().await;
        let is_silent = |host: &str| survey.silent.iter().any(|(silent, _)| silent == host);
        let (mut there, missing) = self.board().divide(&survey.stocks);
        let mut errors = Vec::new();
        // Nothing is gained by starting again what runs.
        let missing = missing
            .into_iter()
            .filter(|request| !self.board().runs_unseen(request.id, is_silent))
            .collect();
        let (placeable, unclear) = self.which_can_be_placed(order, missing, &survey);
        errors.extend(unclear);
        let candidates = self.candidates(&survey.stocks, &there);
        let (placed, refused) = place(placeable.clone(), candidates);
        errors.extend(refused.into_iter().map(Error::from));
        for request in placeable {
            if let Some(host) = placed.get(&request.id) {
                there.entry(host.clone()).or_default().push(request);
            }
        }
        // Those that don't answer are told when they do.
        let told = |host: &str| !is_silent(host);
        errors.extend(self.tell_all(order, there, told).await);
        for stale in survey.stale {
            self.release(stale).await;
        }
        first_of(errors)
    }

    /// Tells hosts what they should have: why some don't.
    async fn tell_all(
        &self,
        order: Order,
        there: BTreeMap<String, Vec<ContainerRequest>>,
        is_told: impl Fn(&str) -> bool,
    ) -> Vec<Error> {
        let floor = self.board().floor();
        let ids = |host: &str| {
            let wanted = there.get(host).into_iter().flatten();
            wanted.map(|request| request.id)
        };
        for host in there.keys() {
            ids(host).for_each(|id| self.board().may_take(host, id));
        }
        // Hosts that have nothing to do are told as well: they obey no older call then.
        let have = |host: &str| Question::Have {
            order,
            wanted: there.get(host).cloned().unwrap_or_default(),
            floor,
        };
        let (done, failed) = self.ask_some(is_told, have).await;
        for (host, _) in done {
            self.board().obeyed(&host, ids(&host));
        }
        failed.into_iter().map(|(_, error)| error).collect()
    }

    /// Starts a container again: where it was, or elsewhere if that host is lost or drained.
    pub(super) async fn restart(&self, order: Order, id: ContainerId) -> Result<u64> {
        let (host, request, floor) = self.where_to_restart(order, id).await?;
        let question = Question::Restart {
            order,
            request,
            floor,
        };
        self.board().may_take(&host, id);
        let answer = match self.link(&host) {
            Some(link) => link.ask(question).await,
            None => Err(Error::new(
                ErrorCode::SchedulerUnavailable,
                format!("host {host} is lost, container {id} has to go elsewhere"),
            )),
        };
        self.board().reserved.remove(&id);
        let Answer::Restarted(incarnation) = answer? else {
            return Err(Error::new(
                ErrorCode::SchedulerUnavailable,
                format!("the runner of host {host} answers something else"),
            ));
        };
        let worker = WorkerId {
            container: id,
            incarnation,
        };
        let stale = self.board().found(&host, worker);
        if let Some(stale) = stale {
            self.release(stale).await;
        }
        Ok(incarnation)
    }

    async fn where_to_restart(
        &self,
        order: Order,
        id: ContainerId,
    ) -> Result<(String, ContainerRequest, u64)> {
        let _turn = self.turn.lock().await;
        let (request, floor) = {
            let board = self.board();
            if order.epoch < board.newest.epoch || board.killed {
                return Err(superseded());
            }
            (board.wanted.get(&id).cloned(), board.floor())
        };
        let known = self.board().host_of(id);
        if let (Some(request), Some(host)) = (&request, known)
            && !self.drained().contains(&host)
        {
            return Ok((host, request.clone(), floor));
        }
        let survey = self.survey().await;
        let held = survey.stocks.values().flat_map(|stock| &stock.held);
        let request = request.or_else(|| {
            let mut held = held.filter(|held| held.request.id == id);
            held.next().map(|held| held.request.clone())
        });
        let request = request.ok_or_else(|| {
            Error::new(
                ErrorCode::NoSuchContainer,
                format!("no container {id} was asked for"),
            )
        })?;
        let floor = self.board().floor();
        let known = self.board().host_of(id);
        if let Some(host) = known {
            let elsewhere = self.leave(&host, &request, &survey).await?;
            if let Some(elsewhere) = &elsewhere {
                let reserved = (elsewhere.clone(), request.required);
                self.board().reserved.insert(id, reserved);
            }
            return Ok((elsewhere.unwrap_or(host), request, floor));
        }
        let (placeable, unclear) = self.which_can_be_placed(order, vec![request.clone()], &survey);
        first_of(unclear)?;
        let (mut placed, refused) =
            place(placeable, self.candidates(&survey.stocks, &BTreeMap::new()));
        first_of(refused.into_iter().map(Error::from).collect())?;
        let host = placed.remove(&id).ok_or_else(superseded)?;
        let reserved = (host.clone(), request.required);
        self.board().reserved.insert(id, reserved);
        Ok((host, request, floor))
    }

    /// Has a container given up by its host, if that is drained and another has room for it: which one. It has stopped then.
    async fn leave(
        &self,
        host: &str,
        request: &ContainerRequest,
        survey: &Survey,
    ) -> Result<Option<String>> {
        if !self.drained().contains(host) {
            return Ok(None);
        }
        let id = request.id;
        let candidates = self.candidates(&survey.stocks, &BTreeMap::new());
        let (mut placed, _) = place(vec![request.clone()], candidates);
        let up_to = self.board().place(id).map(|place| place.incarnation);
        let (Some(elsewhere), Some(up_to)) = (placed.remove(&id), up_to) else {
            return Ok(None);
        };
        // As long as it does not answer, the container may run there.
        match self.link(host) {
            Some(link) => link.ask(Question::Release { id, up_to }).await?,
            None => return Ok(None),
        };
        Ok(Some(elsewhere))
    }

    /// Stops everything, wherever it can be reached.
    pub(super) async fn kill(&self, order: Order) -> Result<()> {
        let _turn = self.turn.lock().await;
        {
            let mut board = self.board();
            if order < board.newest {
                return Err(superseded());
            }
            board.newest = order;
            board.wanted.clear();
        }
        let (_, failed) = self.ask_all(|_| Question::Kill { order }).await;
        let was_overtaken = failed
            .iter()
            .any(|(_, error)| error.code() == ErrorCode::Superseded);
        self.board().killed = !was_overtaken;
        first_of(failed.into_iter().map(|(_, error)| error).collect())
    }

    /// Asks all hosts what they hold.
    pub(super) async fn survey(&self) -> Survey {
        let (answers, silent) = self.ask_all(|_| Question::Stock).await;
        let stocks = answers
            .into_iter()
            .filter_map(|(host, answer)| match answer {
                Answer::Stock(stock) => Some((host, stock)),
                _ => None,
            });
        let stocks: BTreeMap<String, Stock> = stocks.collect();
        let mut board = self.board();
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
        Survey {
            stocks,
            silent,
            stale,
        }
    }

    /// A container that no host holds may be on one that doesn't answer, or has not registered again since the state manager was
    /// away, unless it is known where it was last.
    fn which_can_be_placed(
        &self,
        order: Order,
        missing: Vec<ContainerRequest>,
        survey: &Survey,
    ) -> (Vec<ContainerRequest>, Vec<Error>) {
        let may_miss_hosts = self.may_miss_hosts(order);
        let board = self.board();
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
        stocks: &BTreeMap<String, Stock>,
        there: &BTreeMap<String, Vec<ContainerRequest>>,
    ) -> Vec<Candidate> {
        let drained = self.drained().clone();
        let board = self.board();
        let candidate = |(host, stock): (&String, &Stock)| {
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

impl Board {
    /// Takes in what a host holds; what is stale by that.
    fn found_held(&mut self, host: &str, held: &Held) -> Option<Stale> {
        let worker = WorkerId {
            container: held.request.id,
            incarnation: held.incarnation,
        };
        // Zero is no life: it was to be started there, and was not.
        (held.incarnation > 0).then(|| self.found(host, worker))?
    }

    /// What a host holds of what it should.
    pub(super) fn rightful(&mut self, host: &str, held: &[Held]) -> Vec<ContainerRequest> {
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

    /// Which wanted container stays on which host, and which are nowhere.
    pub(super) fn divide(
        &self,
        stocks: &BTreeMap<String, Stock>,
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

    /// Where a container is, or is about to be.
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

/// The first error, and how many there are. That a call was overtaken comes before everything else.
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
        "this call to the scheduler is not carried out: a newer one was heard",
    )
}
