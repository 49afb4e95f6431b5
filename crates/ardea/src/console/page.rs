//! The web page of a job that runs in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;

use ardea_config::{Kind, Resolved, Setting};
use ardea_core::{Dag, DeadLetters, Error, ErrorCode, Result};
use ardea_metrics::MetricsSink;
use ardea_rest::{Server, ServerConfig};
use ardea_server::embedded::EmbeddedJob;
use tokio::runtime::{Builder, Runtime};

use super::Supervisor;
use super::failure::{MessageKind, print_notice};
use crate::job::logical_plan;

const KEY: &str = "ui";
/// The value for the default address.
const ON: &str = "on";
const DEFAULT_PORT: u16 = 7401;

/// The settings of the page of a run in its own process.
pub(crate) static PAGE_SETTINGS: &[Setting] = &[Setting {
    key: KEY,
    kind: Kind::Text,
    default: "",
    about: "address of the web page of a run in its own process, such as 127.0.0.1:7401; on is that one, or another free port; the hosts of a cluster always have the page",
    trades: "an hour of metrics in memory, and a thread",
}];

/// The address of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PageConfig {
    address: SocketAddr,
    or_any_port: bool,
}

impl PageConfig {
    /// Reads the address from resolved settings; `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] for a text that is no address.
    pub(super) fn from_settings(resolved: &Resolved) -> Result<Option<Self>> {
        let text = resolved.text(KEY)?.trim();
        if text.is_empty() {
            return Ok(None);
        }
        if text == ON {
            return Ok(Some(PageConfig {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
                or_any_port: true,
            }));
        }
        let address = text.parse().map_err(|error| {
            let what = format!("{KEY}={text} is no address");
            Error::new(ErrorCode::InvalidConfig, what)
                .because(error)
                .hint("write an address with a port, such as 127.0.0.1:7401, or on")
        })?;
        Ok(Some(PageConfig {
            address,
            or_any_port: false,
        }))
    }
}

/// The server of the page. It ends when this is dropped.
pub(super) struct Page {
    job: EmbeddedJob,
    runtime: Option<Runtime>,
}

impl Page {
    /// Starts the server of the page of the job `name`, and prints its address unless quiet.
    ///
    /// # Errors
    /// [`ErrorCode::Network`] if the port is taken, [`ErrorCode::InvalidConfig`] for an address
    /// that other machines can reach, [`ErrorCode::LimitReached`] if the system refuses the thread.
    pub(super) fn start(
        config: PageConfig,
        name: &str,
        (dag, threads): (&Dag, NonZeroU32),
        dead_letters: Arc<DeadLetters>,
        with: &Supervisor,
    ) -> Result<Self> {
        let job = EmbeddedJob::new(name, logical_plan(dag, threads)?, dead_letters);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ardea-ui")
            .enable_all()
            .build()
            .map_err(|error| {
                let what = "no thread for the web page";
                Error::new(ErrorCode::LimitReached, what)
                    .because(error)
                    .hint("raise the limit of threads (ulimit -u)")
            })?;
        let server = ServerConfig::at(config.address).or_any_port(config.or_any_port);
        let server = runtime.block_on(Server::bind(Arc::new(job.clone()), server))?;
        let address = server.address()?;
        if !with.quiet {
            let text = format!("{name} is shown at http://{address}/");
            print_notice(MessageKind::Progress, &text, with.json);
        }
        runtime.spawn(server.serve());
        Ok(Page {
            job,
            runtime: Some(runtime),
        })
    }

    /// Returns the sink that receives the metrics of the job.
    pub(super) fn sink(&self) -> Box<dyn MetricsSink> {
        self.job.sink()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use ardea_config::{Resolver, Schema};

    use super::*;

    fn read(flag: &str) -> Result<Option<PageConfig>> {
        let schema = Schema::of(PAGE_SETTINGS);
        PageConfig::from_settings(&Resolver::new(&schema).flags([flag]).resolve()?)
    }

    #[test]
    fn the_page_has_an_address_or_is_off() {
        assert_eq!(read("ui=").unwrap(), None);
        let on = read("ui=on").unwrap().unwrap();
        assert!(on.or_any_port && on.address.port() == DEFAULT_PORT);
        let given = read("ui=127.0.0.1:8000").unwrap().unwrap();
        assert!(!given.or_any_port && given.address.port() == 8_000);
        let error = read("ui=8000").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
    }
}
