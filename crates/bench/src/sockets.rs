//! What the benches of the exchange share: two ends of a TCP connection on this machine.

use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, Result};
use ardea_network::exchange::{Connection, Transport};

/// How long a connection on one machine may take to come about.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection from the first transport to the second.
pub(crate) fn connect(
    first: &mut dyn Transport,
    second: &mut dyn Transport,
) -> Result<(Box<dyn Connection>, Box<dyn Connection>)> {
    let mut listener = second.listen("127.0.0.1:0")?;
    let connecting = first.connect(listener.address())?;
    let start = Instant::now();
    loop {
        second.wait(Duration::from_millis(1))?;
        if let Some(accepted) = listener.accept()? {
            return Ok((connecting, accepted));
        }
        if start.elapsed() > PATIENCE {
            return Err(Error::new(
                ErrorCode::Network,
                "a connection to this machine itself does not come about",
            )
            .hint("is the loopback interface up?"));
        }
    }
}
