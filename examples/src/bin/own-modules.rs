//! Word count with custom modules, which settings select by name:
//! `own-modules submit --set cluster.packing=by-rack …`.

use std::process::ExitCode;

use ardea::cluster::Modules;
use ardea_examples::by_rack::ByRack;
use ardea_examples::odd_cores::OddCores;
use ardea_examples::statsd::Statsd;
use ardea_examples::unix_sockets::UnixSockets;
use ardea_examples::word_stream;
use ardea_network::exchange::Poller;

fn main() -> ExitCode {
    let racks = ["cellar", "attic"].map(String::from).to_vec();
    let modules = Modules::builtin()
        .packing("by-rack", ByRack(racks))
        .scheduler_over_local("odd-cores", OddCores::of)
        .sink("statsd", |setup| Ok(Box::new(Statsd::new(setup)?)))
        .transport("unix", |_| Ok(Box::new(UnixSockets(Poller::new()?))));
    ardea::main_with(modules, word_stream::build)
}
