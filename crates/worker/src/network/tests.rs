//! Tests with several containers in one process, over loopback.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use ardea_coordination::control::Generation;
use ardea_core::{Chunk, Clock, Marker, Rows, Timestamp};
use ardea_engine::Site;
use ardea_network::exchange::{
    End, Identity, InstanceNumber, Received, ReceiverConfig, RetainedOutput, RetainedStreamState,
    RowsCodec, StreamId, StreamItem, StreamReceiver, StreamSender, StreamSenderConfig,
    WorkerNumber,
};

use super::*;
use crate::endpoint_slot::{EndpointSlot, EndpointUser};
use crate::transports::{TransportSetup, Transports};

/// The timeout of any wait.
const PATIENCE: Duration = Duration::from_secs(30);

struct Container {
    thread: NetworkThread,
    told: Mutex<Receiver<NetworkEvent>>,
    site: Site,
    incarnation: u64,
    clock: Clock,
    /// The execution attempt of its streams, for a job with a processing guarantee.
    life: Option<Generation>,
}

thread_local! {
    /// The transport of the containers that this thread starts.
    static TRANSPORT: Cell<&'static str> = const { Cell::new("auto") };
}

/// Runs a test over each transport.
fn over_each_transport(test: impl Fn()) {
    for transport in ["tcp", "uds", "shm", "auto"] {
        TRANSPORT.set(transport);
        test();
    }
}

fn container(site: u32, incarnation: u64) -> Container {
    let setup = TransportSetup {
        is_protected: false,
        tls: None,
        ring_size: None,
    };
    let transport = Transports::builtin().make(TRANSPORT.get(), &setup).unwrap();
    let identity = Identity {
        // Containers of tests that run at the same time do not find each other.
        cluster: format!("harbour/ferry#{:?}", std::thread::current().id()),
        worker: WorkerNumber(u64::from(site)),
        incarnation,
        token: None,
    };
    let (tell, told) = channel();
    let clock = Clock::system();
    let thread = NetworkThread::start(
        transport,
        "127.0.0.1:0",
        identity,
        LinkConfig::default(),
        clock.clone(),
        Arc::new(move |event| drop(tell.send(event))),
    );
    Container {
        thread: thread.unwrap(),
        told: Mutex::new(told),
        site: Site(site),
        incarnation,
        clock,
        life: None,
    }
}

impl Container {
    fn hears_of(&self, peers: &[&Container]) {
        let peers = peers.iter().map(|peer| PeerAddress {
            site: peer.site,
            incarnation: peer.incarnation,
            addresses: vec![peer.thread.address().parse().unwrap()],
        });
        self.thread.network().peers(peers.collect());
    }

    /// Waits for a matching event; earlier ones are dropped.
    fn wait_for(&self, wanted: impl Fn(&NetworkEvent) -> bool) -> NetworkEvent {
        let told = self.told.lock().unwrap();
        loop {
            let event = told.recv_timeout(PATIENCE).expect("it is not told");
            if wanted(&event) {
                return event;
            }
        }
    }

    /// Returns the sender of a stream, which is in its slot.
    fn sender_to(&self, to: u32) -> Arc<EndpointSlot<StreamSender>> {
        let (network, codec) = (self.thread.network(), Arc::new(RowsCodec::<u64>::wire()));
        let slot = network.port_slot(Site(to), End::Sender, StreamId::new(1, 0));
        let config = StreamSenderConfig {
            fails_on_loss: self.life.is_some(),
            ..StreamSenderConfig::default()
        };
        let end = StreamSender::new(slot, codec, config, Default::default());
        EndpointSlot::new(end, network)
    }

    fn sends_to(&self, to: u32) -> EndpointUser<StreamSender> {
        EndpointUser::new(self.sender_to(to))
    }

    /// Returns the sender of a stream that keeps its output.
    fn keeps_for(&self, to: u32, keeping: &Arc<RetainedStreamState>) -> EndpointUser<StreamSender> {
        let (network, codec) = (self.thread.network(), Arc::new(RowsCodec::<u64>::wire()));
        let slot = network.port_slot(Site(to), End::Sender, StreamId::new(1, 0));
        let config = StreamSenderConfig {
            fails_on_loss: true,
            ..StreamSenderConfig::default()
        };
        let output = RetainedOutput::new(Arc::clone(keeping), None);
        let end = StreamSender::new(slot, codec, config, Default::default()).keeping(output);
        EndpointUser::new(EndpointSlot::new(end, network))
    }

    fn receives_from(&self, from: u32) -> EndpointUser<StreamReceiver> {
        let (network, codec) = (self.thread.network(), Arc::new(RowsCodec::<u64>::wire()));
        let slot = network.port_slot(Site(from), End::Receiver, StreamId::new(1, 0));
        let end = StreamReceiver::new(slot, codec, ReceiverConfig::default());
        EndpointUser::new(EndpointSlot::new(end, network))
    }

    fn receive(
        &self,
        end: &mut EndpointUser<StreamReceiver>,
        got: &mut Vec<u64>,
    ) -> Option<StreamItem> {
        let mut chunk = Chunk::default();
        let end = end.get().unwrap();
        let came = end.receive(self.clock.now(), &mut chunk).unwrap();
        if !chunk.is_empty() {
            got.extend_from_slice(chunk.rows::<u64>().unwrap().values());
        }
        came
    }
}

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "nothing comes any more");
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}

/// Sends values, calling `meanwhile` between the attempts.
fn send(
    end: &mut EndpointUser<StreamSender>,
    values: impl Iterator<Item = u64>,
    mut meanwhile: impl FnMut(),
) {
    let mut chunk = Chunk::new(Rows::from_iter(values.map(|it| (it, Timestamp::MIN))));
    until(|| {
        meanwhile();
        let end = end.get().unwrap();
        let sent = end.send(InstanceNumber(3), &mut chunk).unwrap();
        end.flush().unwrap();
        sent
    });
}

fn said(marker: Marker) -> Option<StreamItem> {
    Some(StreamItem::Frame(Received::Marker(marker)))
}

#[test]
fn two_containers_have_one_connection_whoever_hears_of_the_other_first() {
    over_each_transport(connect_in_any_order);
}

fn connect_in_any_order() {
    for order in [[0, 1], [1, 0]] {
        let both = [container(1, 1), container(2, 1)];
        for at in order {
            both[at].hears_of(&[&both[1 - at]]);
        }
        for at in order {
            both[at].wait_for(|event| matches!(event, NetworkEvent::Up(..)));
        }
        let told = both[0].told.lock().unwrap();
        assert!(told.try_recv().is_err(), "there is one connection");
    }
}

#[test]
fn a_stream_goes_on_with_the_next_life_of_its_receiver() {
    over_each_transport(go_on_with_the_next_life);
}

fn go_on_with_the_next_life() {
    let ours = container(1, 1);
    let first = container(2, 1);
    ours.hears_of(&[&first]);
    let mut sender = ours.sends_to(2);
    let mut receiver = first.receives_from(1);
    let mut got = Vec::new();
    let up_to_seven = Marker::Watermark(ardea_core::Watermark(Timestamp::from_secs(7)));
    send(&mut sender, 0..10, || {
        let _ = first.receive(&mut receiver, &mut got);
    });
    until(|| sender.get().unwrap().mark(up_to_seven).unwrap());
    sender.get().unwrap().flush().unwrap();
    until(|| first.receive(&mut receiver, &mut got) == said(up_to_seven));
    assert_eq!(got, (0..10).collect::<Vec<_>>());
    drop(receiver);
    drop(first);
    ours.wait_for(|event| matches!(event, NetworkEvent::Lost(Site(2), 1, _)));

    let second = container(2, 2);
    let mut receiver = second.receives_from(1);
    ours.hears_of(&[&second]);
    ours.wait_for(|event| matches!(event, NetworkEvent::Up(Site(2), 2, _)));
    got.clear();
    let mut came = Vec::new();
    send(&mut sender, 10..20, || {
        came.extend(second.receive(&mut receiver, &mut got));
    });
    until(|| {
        came.extend(second.receive(&mut receiver, &mut got));
        got.len() == 10
    });
    assert_eq!(got, (10..20).collect::<Vec<_>>());
    let begins = said(Marker::Watermark(ardea_core::Watermark::NONE));
    let told = [begins, said(up_to_seven)].map(Option::unwrap);
    assert_eq!(
        came[..2],
        told,
        "it is told that the stream begins, and how far time has come"
    );
}

#[test]
fn in_a_life_of_the_job_nothing_is_sent_behind_what_was_lost() {
    over_each_transport(send_nothing_behind_a_loss);
}

fn send_nothing_behind_a_loss() {
    let mut ours = container(1, 1);
    ours.life = Some(Generation(1));
    let first = container(2, 1);
    ours.hears_of(&[&first]);
    let mut sender = ours.sends_to(2);
    let mut receiver = first.receives_from(1);
    ours.wait_for(|event| matches!(event, NetworkEvent::Up(..)));
    let mut got = Vec::new();
    until(|| {
        first.receive(&mut receiver, &mut got);
        sender.get().unwrap().mark(Marker::Idle).unwrap()
    });
    // These records are never acknowledged.
    send(&mut sender, 0..10, || {});
    drop(receiver);
    drop(first);
    ours.wait_for(|event| matches!(event, NetworkEvent::Lost(..)));
    let second = container(2, 2);
    let mut receiver = second.receives_from(1);
    ours.hears_of(&[&second]);
    let mut chunk = Chunk::new(Rows::from_iter([(10_u64, Timestamp::MIN)]));
    let mut refused = None;
    until(|| {
        second.receive(&mut receiver, &mut got);
        let sent = sender.get().unwrap().send(InstanceNumber(3), &mut chunk);
        refused = sent.err();
        refused.is_some()
    });
    assert_eq!(refused.unwrap().code(), ErrorCode::PeerLost);
    assert_eq!((chunk.len(), got), (1, Vec::new()));
}

#[test]
fn kept_output_is_sent_again_to_a_process_that_was_restored_alone() {
    over_each_transport(repeat_kept_output);
}

fn repeat_kept_output() {
    let ours = container(1, 1);
    let first = container(2, 1);
    ours.hears_of(&[&first]);
    let keeping = Arc::new(RetainedStreamState::new(1 << 20));
    let mut sender = ours.keeps_for(2, &keeping);
    let mut receiver = first.receives_from(1);
    let mut got = Vec::new();
    let barrier = Marker::Barrier(ardea_core::Epoch(6));
    send(&mut sender, 0..10, || {
        first.receive(&mut receiver, &mut got);
    });
    until(|| sender.get().unwrap().mark(barrier).unwrap());
    send(&mut sender, 10..20, || {
        first.receive(&mut receiver, &mut got);
    });
    until(|| {
        first.receive(&mut receiver, &mut got);
        got.len() == 20
    });
    drop(receiver);
    drop(first);
    ours.wait_for(|event| matches!(event, NetworkEvent::Lost(..)));

    let second = container(2, 2);
    let mut receiver = second.receives_from(1);
    ours.hears_of(&[&second]);
    ours.wait_for(|event| matches!(event, NetworkEvent::Up(Site(2), 2, _)));
    let mut chunk = Chunk::new(Rows::from_iter([(20_u64, Timestamp::MIN)]));
    let is_sent = sender.get().unwrap().send(InstanceNumber(3), &mut chunk);
    assert!(!is_sent.unwrap(), "its starting point is not known");
    assert!(keeping.restarted(WorkerNumber(2), 2, Some(ardea_core::Epoch(6))));
    got.clear();
    send(&mut sender, 20..30, || {
        second.receive(&mut receiver, &mut got);
    });
    until(|| {
        sender.get().unwrap().flush().unwrap();
        second.receive(&mut receiver, &mut got);
        got.len() == 20
    });
    assert_eq!(got, (10..30).collect::<Vec<_>>());
}

#[test]
fn an_epochs_end_that_may_be_lost_with_a_connection_is_told_over_the_next_one() {
    over_each_transport(repeat_the_barrier);
}

fn repeat_the_barrier() {
    let mut ours = container(1, 1);
    ours.life = Some(Generation(1));
    let first = container(2, 1);
    ours.hears_of(&[&first]);
    let mut sender = ours.sends_to(2);
    let mut receiver = first.receives_from(1);
    let mut got = Vec::new();
    let end = |epoch| Marker::Barrier(ardea_core::Epoch(epoch));
    for epoch in [6, 7] {
        until(|| {
            first.receive(&mut receiver, &mut got);
            sender.get().unwrap().mark(end(epoch)).unwrap()
        });
    }
    let up_to_seven = Marker::Watermark(ardea_core::Watermark(Timestamp::from_secs(7)));
    until(|| {
        first.receive(&mut receiver, &mut got);
        sender.get().unwrap().mark(up_to_seven).unwrap()
    });
    // It is unknown whether these arrive.
    sender.get().unwrap().flush().unwrap();
    drop(receiver);
    drop(first);
    ours.wait_for(|event| matches!(event, NetworkEvent::Lost(..)));
    let second = container(2, 2);
    let mut receiver = second.receives_from(1);
    ours.hears_of(&[&second]);
    let mut told = Vec::new();
    until(|| {
        sender.get().unwrap().flush().unwrap();
        told.extend(second.receive(&mut receiver, &mut got));
        told.len() == 3
    });
    let begins = said(Marker::Watermark(ardea_core::Watermark::NONE));
    let expected = [begins, said(end(7)), said(up_to_seven)].map(Option::unwrap);
    assert_eq!(told, expected, "the newest alone, and before time");
}

#[test]
fn a_later_life_that_was_not_told_of_yet_takes_the_place_of_the_earlier_one() {
    over_each_transport(replace_an_earlier_life);
}

fn replace_an_earlier_life() {
    let earlier = container(1, 5);
    let theirs = container(2, 1);
    earlier.hears_of(&[&theirs]);
    theirs.wait_for(|event| matches!(event, NetworkEvent::Up(Site(1), 5, _)));
    let later = container(1, 6);
    later.hears_of(&[&theirs]);
    theirs.wait_for(|event| matches!(event, NetworkEvent::Up(Site(1), 6, _)));
    // The earlier incarnation retries in vain.
    earlier.wait_for(|event| matches!(event, NetworkEvent::Lost(..)));
    later.hears_of(&[&theirs]);
    let mut sender = later.sends_to(2);
    let mut receiver = theirs.receives_from(1);
    let mut got = Vec::new();
    send(&mut sender, 0..1, || {
        let _ = theirs.receive(&mut receiver, &mut got);
    });
    until(|| {
        theirs.receive(&mut receiver, &mut got);
        got == [0]
    });
}

#[test]
fn the_end_of_a_stream_is_told_to_each_life_of_its_receiver() {
    over_each_transport(repeat_the_end);
}

fn repeat_the_end() {
    let ours = container(1, 1);
    let slot = ours.sender_to(2);
    // Its user is dropped before any peer exists.
    let mut sender = EndpointUser::new(Arc::clone(&slot));
    sender.get().unwrap().finish().unwrap();
    drop(sender);
    for incarnation in 1..=3 {
        let theirs = container(2, incarnation);
        let mut receiver = theirs.receives_from(1);
        ours.hears_of(&[&theirs]);
        let mut got = Vec::new();
        until(|| theirs.receive(&mut receiver, &mut got) == said(Marker::Done));
    }
}

#[test]
fn nobody_waits_for_a_container_that_is_gone_and_no_part_of_the_job() {
    over_each_transport(drop_data_of_a_former_member);
}

fn drop_data_of_a_former_member() {
    let ours = container(1, 1);
    let theirs = container(2, 1);
    ours.hears_of(&[&theirs]);
    ours.wait_for(|event| matches!(event, NetworkEvent::Up(..)));
    let mut sender = ours.sends_to(2);
    ours.thread.network().members([Site(1)]);
    drop(theirs);
    // Data that cannot be sent any more is dropped.
    send(&mut sender, 0..1_000, || {});
    send(&mut sender, 0..1_000, || {});
}

#[test]
fn garbage_is_turned_away_and_changes_nothing() {
    use std::io::Write;
    let (ours, theirs) = (container(1, 1), container(2, 1));
    ours.hears_of(&[&theirs]);
    ours.wait_for(|event| matches!(event, NetworkEvent::Up(..)));
    let mut sender = ours.sends_to(2);
    let mut receiver = theirs.receives_from(1);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 10_000], &[]] {
        for at in [&ours, &theirs] {
            let mut socket = std::net::TcpStream::connect(at.thread.address()).unwrap();
            // The peer may have closed it already.
            let _ = socket.write_all(garbage);
        }
    }
    let mut got = Vec::new();
    send(&mut sender, 0..10, || {
        let _ = theirs.receive(&mut receiver, &mut got);
    });
    until(|| {
        theirs.receive(&mut receiver, &mut got);
        got.len() == 10
    });
    let told = theirs.told.lock().unwrap();
    let lost = told
        .try_iter()
        .find(|it| matches!(it, NetworkEvent::Lost(..)));
    assert_eq!(lost, None);
}

#[test]
fn the_transport_of_a_connection_is_the_configured_one_and_auto_is_shared_memory_here() {
    for (transport, kind) in [
        ("tcp", "tcp"),
        ("uds", "uds"),
        ("shm", "shm"),
        ("auto", "shm"),
    ] {
        TRANSPORT.set(transport);
        let (ours, theirs) = (container(1, 1), container(2, 1));
        ours.hears_of(&[&theirs]);
        for container in [&ours, &theirs] {
            let up = container.wait_for(|event| matches!(event, NetworkEvent::Up(..)));
            assert!(
                matches!(up, NetworkEvent::Up(_, 1, is) if is == kind),
                "{up:?}"
            );
        }
        until(|| {
            let counts = ours.thread.network().counts();
            let ring = counts.get(&(Site(2), kind)).map(|total| total.counts.ring);
            ring.is_some_and(|ring| (ring.capacity_bytes > 0) == (kind == "shm"))
        });
    }
}

#[test]
fn a_peer_without_an_address_on_this_host_is_reached_over_the_network_and_shared_memory_again_later()
 {
    TRANSPORT.set("tcp");
    let theirs = container(2, 1);
    TRANSPORT.set("auto");
    let ours = container(1, 1);
    ours.hears_of(&[&theirs]);
    ours.wait_for(|event| matches!(event, NetworkEvent::NotOnHost(Site(2), _)));
    ours.wait_for(|event| *event == NetworkEvent::Up(Site(2), 1, "tcp"));
    let next = container(2, 2);
    ours.hears_of(&[&next]);
    ours.wait_for(|event| *event == NetworkEvent::Up(Site(2), 2, "shm"));
}

#[test]
fn a_peer_whose_address_on_this_host_does_not_answer_is_reached_over_the_network() {
    TRANSPORT.set("tcp");
    let theirs = container(2, 1);
    let port = port_of(theirs.thread.address());
    let cluster = format!("harbour/ferry#{:?}", std::thread::current().id());
    let setup = TransportSetup {
        is_protected: false,
        tls: None,
        ring_size: None,
    };
    // Another process has the address on this host.
    let mut squatter = Transports::builtin().make("uds", &setup).unwrap();
    let name = ardea_network::exchange::host_address(&cluster, WorkerNumber(2), 1, port);
    let _listener = squatter.listen(&name).unwrap();
    TRANSPORT.set("auto");
    let ours = container(1, 1);
    ours.hears_of(&[&theirs]);
    // The other process never answers, so the attempt times out.
    ours.wait_for(|event| *event == NetworkEvent::Up(Site(2), 1, "tcp"));
}
