//! Two ends of a connection on this machine, for the benches of the network.

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::exchange::{AddressScope, Connection, Transport, WorkerNumber, host_address};

/// Timeout for establishing a connection on one machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a connection from the first transport to the second, and returns both ends.
pub(crate) fn connect(
    first: &mut dyn Transport,
    second: &mut dyn Transport,
) -> Result<(Box<dyn Connection>, Box<dyn Connection>)> {
    let address = match second.scope() {
        AddressScope::Host => {
            host_address("bench", WorkerNumber(2), u64::from(std::process::id()), 0)
        }
        AddressScope::Network | AddressScope::HostThenNetwork => "127.0.0.1:0".to_string(),
    };
    let mut listener = second.listen(&address)?;
    let connecting = first.connect(listener.address())?;
    let start = Instant::now();
    loop {
        second.wait(Duration::from_millis(1))?;
        if let Some(accepted) = listener.accept()? {
            return Ok((connecting, accepted));
        }
        if start.elapsed() > CONNECT_TIMEOUT {
            return Err(
                Error::new(ErrorCode::Network, "cannot connect to this machine itself")
                    .hint("is the loopback interface up?"),
            );
        }
    }
}
