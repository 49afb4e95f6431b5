//! The registry of connections, peers and port slots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ardea_engine::Site;
use ardea_network::exchange::{
    AddressScope, Connection, DisconnectReason, Disconnected, Identity, Link, LinkConfig,
    LinkCounts, LinkNumber, NewPort, PeerIdentity, PortSlot, RingCounts, Side, Transport,
    WorkerNumber, host_address,
};
use ardea_network::rpc::RefusedLog;

use super::peers::{PeerLocation, PeerState};
use super::{EventCallback, LinkTotals, NetworkEvent, PeerAddress};

/// Maximum number of accepted connections without a completed handshake.
pub(super) const MOST_STRANGERS: usize = 1024;

struct Entry {
    link: Link,
    /// The peer to which this process opened the connection; `None` for an accepted connection.
    wanted: Option<Site>,
    /// The identity of the peer; `None` before the handshake.
    greeted: Option<PeerIdentity>,
    /// The name of the transport.
    transport: &'static str,
    /// True if the connection was opened to an address on this host, and the peer may have one in
    /// the network.
    has_alternative: bool,
}

impl Entry {
    /// Returns the kind of the connection.
    fn kind(&self) -> &'static str {
        self.link.kind().unwrap_or(self.transport)
    }
}

/// All connections of this process.
pub(super) struct Links {
    here: Site,
    /// The kinds of addresses at which peers are looked for.
    scope: AddressScope,
    identity: Identity,
    config: LinkConfig,
    tell: Arc<EventCallback>,
    entries: BTreeMap<LinkNumber, Entry>,
    last: LinkNumber,
    peers: BTreeMap<Site, PeerState>,
    members: Option<BTreeSet<Site>>,
    slots: BTreeMap<Site, Vec<Weak<PortSlot>>>,
    /// True if a port slot waits for its previous port to close.
    unopened: bool,
    /// A buffer with the numbers of the connections being polled, retained so that polling does not
    /// allocate.
    polled: Vec<LinkNumber>,
    /// The counters of closed connections.
    past: LinkTotals,
    turned_away: RefusedLog,
}

impl Links {
    pub(super) fn new(
        identity: Identity,
        config: LinkConfig,
        scope: AddressScope,
        tell: Arc<EventCallback>,
    ) -> Self {
        Links {
            scope,
            here: site_of(identity.worker),
            identity,
            config,
            tell,
            entries: BTreeMap::new(),
            last: LinkNumber::default(),
            peers: BTreeMap::new(),
            members: None,
            slots: BTreeMap::new(),
            unopened: false,
            polled: Vec::new(),
            past: BTreeMap::new(),
            turned_away: RefusedLog::default(),
        }
    }

    /// Returns the number of connections without a completed handshake.
    pub(super) fn strangers(&self) -> usize {
        let entries = self.entries.values();
        entries.filter(|entry| entry.greeted.is_none()).count()
    }

    /// Adds an accepted connection.
    pub(super) fn accepted(
        &mut self,
        connection: Box<dyn Connection>,
        transport: &dyn Transport,
        now: Duration,
    ) {
        self.add(connection, Side::Accepted, None, transport, now);
    }

    fn add(
        &mut self,
        connection: Box<dyn Connection>,
        side: Side,
        wanted: Option<Site>,
        transport: &dyn Transport,
        now: Duration,
    ) -> LinkNumber {
        self.last = LinkNumber(self.last.0 + 1);
        let (identity, bell) = (self.identity.clone(), transport.waker());
        let link = Link::new(connection, side, identity, bell, self.config, now);
        let entry = Entry {
            link,
            wanted,
            greeted: None,
            transport: transport.name(),
            has_alternative: false,
        };
        self.entries.insert(self.last, entry);
        self.last
    }

    pub(super) fn set_addresses(&mut self, peers: Vec<PeerAddress>, now: Duration) {
        for told in peers {
            let site = told.site;
            if site == self.here {
                continue;
            }
            let (incarnation, connects) = (told.incarnation, self.connects_to(site));
            let addresses = self.addresses_of(&told);
            let peer = self.peers.entry(site).or_default();
            let is_later = peer.told(incarnation, addresses, now);
            if !connects || (!is_later && peer.link.is_some()) {
                peer.retry_at = None;
            }
            let old = peer.link.filter(|number| {
                let greeted = self.entries.get(number).and_then(|entry| entry.greeted);
                is_later && greeted.is_none_or(|greeted| greeted.incarnation < incarnation)
            });
            if let Some(old) = old {
                self.drop_link(old, "a later start of it has been reported", now);
            }
        }
    }

    /// Returns the addresses at which a peer is looked for, in their order.
    fn addresses_of(&self, told: &PeerAddress) -> Vec<PeerLocation> {
        let worker = WorkerNumber(u64::from(told.site.0));
        let on_host = |port| host_address(&self.identity.cluster, worker, told.incarnation, port);
        let ports: BTreeSet<u16> = told
            .addresses
            .iter()
            .map(|address| address.port())
            .collect();
        let on_host = ports.into_iter().map(on_host).map(PeerLocation::OnHost);
        let in_network = told.addresses.iter();
        let in_network = in_network.map(|address| PeerLocation::InNetwork(address.to_string()));
        match self.scope {
            AddressScope::Network => in_network.collect(),
            AddressScope::HostThenNetwork => on_host.chain(in_network).collect(),
            AddressScope::Host => on_host.collect(),
        }
    }

    pub(super) fn set_members(&mut self, members: BTreeSet<Site>) {
        self.members = Some(members);
        self.abort_missing_peers();
    }

    /// Returns true if a site belongs to the job.
    fn is_member(&self, site: Site) -> bool {
        let members = self.members.as_ref();
        members.is_none_or(|members| members.contains(&site))
    }

    fn connects_to(&self, site: Site) -> bool {
        self.here < site
    }

    pub(super) fn join(&mut self, station: &Arc<PortSlot>) {
        let site = site_of(station.peer);
        let stations = self.slots.entry(site).or_default();
        stations.retain(|known| known.strong_count() > 0);
        stations.push(Arc::downgrade(station));
        let peer = self.peers.get(&site);
        if let Some(number) = peer.and_then(|peer| peer.link)
            && let Some(entry) = self.entries.get_mut(&number)
            && entry.greeted.is_some()
        {
            self.unopened |= !open(&mut entry.link, number, station);
        }
        self.abort_missing_peers();
    }

    /// Drops a connection that an endpoint has reported as invalid, if it is still the current
    /// connection to the peer.
    pub(super) fn drop_if_current(
        &mut self,
        site: Site,
        link: LinkNumber,
        why: &str,
        now: Duration,
    ) {
        let peer = self.peers.get(&site);
        if peer.is_some_and(|peer| peer.link == Some(link)) {
            self.drop_link(link, why, now);
        }
    }

    /// Connects to the peers whose retry time has come.
    pub(super) fn connect_due(&mut self, transport: &mut dyn Transport, now: Duration) {
        let due = |peer: &PeerState| peer.retry_at.is_some_and(|at| at <= now);
        let sites: Vec<Site> = self
            .peers
            .iter()
            .filter(|(_, peer)| due(peer))
            .map(|(site, _)| *site)
            .collect();
        for site in sites {
            let (is_member, connects) = (self.is_member(site), self.connects_to(site));
            let Some(peer) = self.peers.get_mut(&site) else {
                continue;
            };
            peer.retry_at = None;
            let Some(address) = peer.next_address().filter(|_| connects) else {
                continue;
            };
            match transport.connect(address.as_str()) {
                Ok(connection) => {
                    let side = Side::Connected(Some(WorkerNumber(u64::from(site.0))));
                    let number = self.add(connection, side, Some(site), transport, now);
                    if let Some(entry) = self.entries.get_mut(&number) {
                        let is_on_host = matches!(address, PeerLocation::OnHost(_));
                        entry.has_alternative = is_on_host && self.scope != AddressScope::Host;
                    }
                    if let Some(peer) = self.peers.get_mut(&site) {
                        peer.link = Some(number);
                    }
                }
                Err(error) => {
                    peer.record_failure(now, is_member);
                    (self.tell)(NetworkEvent::Unreachable(site, error.to_string()));
                }
            }
        }
    }

    /// Polls every connection. Returns true if any has made progress.
    pub(super) fn poll(&mut self, now: Duration) -> bool {
        let mut made = false;
        let mut numbers = std::mem::take(&mut self.polled);
        numbers.extend(self.entries.keys());
        for number in numbers.drain(..) {
            let Some(entry) = self.entries.get_mut(&number) else {
                continue;
            };
            match entry.link.poll(now) {
                Ok(progress) => {
                    made |= progress.made;
                    if entry.greeted.is_none()
                        && let Some(greeted) = entry.link.peer()
                    {
                        made = true;
                        self.greeted(number, greeted, now);
                    }
                }
                Err(gone) => {
                    made = true;
                    self.gone(number, &gone, now);
                }
            }
        }
        self.polled = numbers;
        if self.unopened {
            self.open_all();
        }
        made
    }

    /// Announces that the thread is about to wait: see [`Connection::may_wait`].
    pub(super) fn may_wait(&mut self) -> bool {
        self.entries.values_mut().all(|entry| entry.link.may_wait())
    }

    /// Returns the number of bytes sent and received over the present links.
    pub(super) fn moved_bytes(&self) -> u64 {
        let links = self.entries.values().map(|entry| &entry.link);
        links.map(Link::moved_bytes).sum()
    }

    /// Returns the latest time of the next poll.
    pub(super) fn next_poll(&self) -> Option<Duration> {
        let links = self.entries.values().map(|entry| entry.link.next_poll());
        let retries = self.peers.values().filter_map(|peer| peer.retry_at);
        links.chain(retries).min()
    }

    fn greeted(&mut self, number: LinkNumber, greeted: PeerIdentity, now: Duration) {
        let site = site_of(greeted.worker);
        let peer = self.peers.entry(site).or_default();
        if site == self.here || greeted.incarnation < peer.incarnation {
            // The peer is an earlier incarnation that does not know of its successor.
            self.drop_link(number, "it is an earlier start of this container", now);
            return;
        }
        peer.incarnation = greeted.incarnation;
        let before = peer.link.filter(|before| *before != number);
        if let Some(before) = before {
            // The new connection may be of the same incarnation, if the peer was first to notice
            // the loss of the old one.
            self.drop_link(before, "it has connected again", now);
        }
        let mut kind = "";
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.greeted = Some(greeted);
            kind = entry.kind();
        }
        self.peers.entry(site).or_default().record_success(number);
        for station in self.stations_of(site) {
            station.set_aborted(false);
            if let Some(entry) = self.entries.get_mut(&number) {
                self.unopened |= !open(&mut entry.link, number, &station);
            }
        }
        (self.tell)(NetworkEvent::Up(site, greeted.incarnation, kind));
    }

    fn gone(&mut self, number: LinkNumber, gone: &Disconnected, now: Duration) {
        let entry = self.entries.get(&number);
        let is_stranger =
            entry.is_some_and(|entry| entry.greeted.is_none() && entry.wanted.is_none());
        // A connection that only closes may be a probe for an open port.
        if is_stranger
            && !matches!(
                gone.reason,
                DisconnectReason::Closed | DisconnectReason::Broken(_)
            )
        {
            self.turned_away.note(&gone.peer, &gone.to_string());
        }
        self.remove(number, gone.to_string(), now);
    }

    fn drop_link(&mut self, number: LinkNumber, why: &str, now: Duration) {
        self.remove(number, why.to_string(), now);
    }

    /// Removes a connection and notifies its ports.
    fn remove(&mut self, number: LinkNumber, why: String, now: Duration) {
        let Some(entry) = self.entries.remove(&number) else {
            return;
        };
        let site = match (entry.greeted, entry.wanted) {
            (Some(greeted), _) => site_of(greeted.worker),
            (None, Some(site)) => site,
            // The connection had no completed handshake.
            (None, None) => return,
        };
        let (is_member, connects) = (self.is_member(site), self.connects_to(site));
        let peer = self.peers.entry(site).or_default();
        let is_present = peer.link == Some(number);
        match entry.greeted {
            Some(greeted) => {
                if is_present {
                    peer.lost(now);
                }
                let past = &mut self.past.entry((site, entry.kind())).or_default().counts;
                add_counts(past, entry.link.counts());
                past.ring.fill_bytes = 0;
                past.ring.capacity_bytes = 0;
                drop(entry.link);
                (self.tell)(NetworkEvent::Lost(site, greeted.incarnation, why));
            }
            None => {
                if is_present {
                    peer.record_failure(now, is_member);
                }
                (self.tell)(match entry.has_alternative {
                    true => NetworkEvent::NotOnHost(site, why),
                    false => NetworkEvent::Unreachable(site, why),
                });
            }
        }
        if !connects && let Some(peer) = self.peers.get_mut(&site) {
            peer.retry_at = None;
        }
        self.abort_missing_peers();
    }

    /// Marks the port slots of a peer as aborted if the peer is gone and not part of the job.
    fn abort_missing_peers(&mut self) {
        let sites: Vec<Site> = self.slots.keys().copied().collect();
        for site in sites {
            let peer = self.peers.get(&site);
            let entry = peer
                .and_then(|peer| peer.link)
                .and_then(|number| self.entries.get(&number));
            let is_there = entry.is_some_and(|entry| entry.greeted.is_some());
            let is_aborted = !is_there && !self.is_member(site);
            for station in self.stations_of(site) {
                station.set_aborted(is_aborted);
            }
        }
    }

    /// Opens the ports that could not be opened before, because the slot's previous port was open.
    fn open_all(&mut self) {
        self.unopened = false;
        let greeted: Vec<(LinkNumber, Site)> = self
            .entries
            .iter()
            .filter_map(|(number, entry)| Some((*number, site_of(entry.greeted?.worker))))
            .collect();
        for (number, site) in greeted {
            for station in self.stations_of(site) {
                if let Some(entry) = self.entries.get_mut(&number)
                    && station.last_given() < number
                {
                    self.unopened |= !open(&mut entry.link, number, &station);
                }
            }
        }
    }

    fn stations_of(&self, site: Site) -> Vec<Arc<PortSlot>> {
        let stations = self.slots.get(&site).into_iter().flatten();
        stations.filter_map(Weak::upgrade).collect()
    }

    /// Returns the counters of the connections to each peer.
    pub(super) fn counts(&self) -> LinkTotals {
        let mut counts = self.past.clone();
        for entry in self.entries.values() {
            if let Some(greeted) = entry.greeted {
                let key = (site_of(greeted.worker), entry.kind());
                let total = counts.entry(key).or_default();
                add_counts(&mut total.counts, entry.link.counts());
                total.is_connected = true;
            }
        }
        counts
    }
}

/// Opens a port for a port slot. Returns false if the slot's previous port is still open.
fn open(link: &mut Link, number: LinkNumber, station: &Arc<PortSlot>) -> bool {
    match link.open(station.end, station.stream, station.waker()) {
        Ok(port) => {
            station.put(NewPort {
                port,
                link: number,
                incarnation: link.peer().map_or(0, |peer| peer.incarnation),
            });
            true
        }
        Err(_) => false,
    }
}

/// Returns the site of a worker number. Numbers that exceed 32 bits are invalid and match no peer.
fn site_of(worker: WorkerNumber) -> Site {
    Site(u32::try_from(worker.0).unwrap_or(u32::MAX))
}

fn add_counts(sum: &mut LinkCounts, counts: LinkCounts) {
    let LinkCounts {
        frames_in,
        bytes_in,
        bytes_out,
        stray_frames,
        stray_records,
        ring,
    } = counts;
    sum.frames_in += frames_in;
    sum.bytes_in += bytes_in;
    sum.bytes_out += bytes_out;
    sum.stray_frames += stray_frames;
    sum.stray_records += stray_records;
    let RingCounts {
        capacity_bytes,
        fill_bytes,
        messages,
        abandoned,
        sleeps,
        full,
    } = ring;
    sum.ring.capacity_bytes += capacity_bytes;
    sum.ring.fill_bytes += fill_bytes;
    sum.ring.messages += messages;
    sum.ring.abandoned += abandoned;
    sum.ring.sleeps += sleeps;
    sum.ring.full += full;
}
