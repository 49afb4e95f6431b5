//! Client settings shared by source and sink.

use std::collections::BTreeMap;
use std::fmt;

use ardea_core::{Error, ErrorCode, Result};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaError;
use rdkafka::{ClientConfig, ClientContext};

use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::security::{Sasl, Security, Tls, is_secret};

/// Default consumer settings that properties can override.
const CONSUMER_DEFAULTS: &[(&str, &str)] = &[
    // Fetching resumes quickly when the queue has space again.
    ("fetch.queue.backoff.ms", "5"),
    ("queued.max.messages.kbytes", "16384"),
    ("reconnect.backoff.max.ms", "1000"),
    ("isolation.level", "read_committed"),
    // A damaged batch is reported as an error instead of being delivered.
    ("check.crcs", "true"),
];

/// Brokers, topic and librdkafka settings.
#[derive(Clone)]
pub(crate) struct Settings {
    pub brokers: String,
    /// The topic written to, or a description of the topics read.
    pub topic: String,
    security: Security,
    properties: BTreeMap<String, String>,
}

impl Settings {
    pub fn new(brokers: String, topic: String) -> Self {
        Settings {
            brokers,
            topic,
            security: Security::default(),
            properties: BTreeMap::new(),
        }
    }

    pub fn set(&mut self, name: String, value: String) {
        self.properties.insert(name, value);
    }

    pub fn set_tls(&mut self, tls: Tls) {
        self.security.tls = Some(tls);
    }

    pub fn set_sasl(&mut self, sasl: Sasl) {
        self.security.sasl = Some(sasl);
    }

    /// Returns the configured value of a property.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    /// Returns settings with only the connection properties, for another client of the same
    /// brokers.
    pub fn of_connections(&self) -> Settings {
        let is_of_connections = |name: &str| {
            [
                "security.",
                "sasl.",
                "ssl.",
                "enable.ssl.",
                "socket.",
                "broker.address.",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        };
        let mut other = self.clone();
        other.properties.retain(|name, _| is_of_connections(name));
        other
    }

    /// Creates a client with these settings, which override `defaults`. The `fixed` settings cannot
    /// be overridden, as the guarantees depend on them.
    pub fn client<X, C>(
        &self,
        job: &str,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<C>
    where
        X: ClientContext + From<KafkaClientContext>,
        C: FromClientConfigAndContext<X>,
    {
        self.create(self.config(job, defaults, fixed)?)
    }

    /// Creates a consumer whose context collects topic ids and leader epochs.
    pub fn consumer(
        &self,
        job: &str,
        fixed: &[(&str, &str)],
    ) -> Result<BaseConsumer<KafkaClientContext>> {
        let mut config = self.config(job, CONSUMER_DEFAULTS, fixed)?;
        // librdkafka exposes topic ids and leader epochs only in these log lines.
        let debug = match config.get("debug") {
            Some(own) => format!("{own},metadata"),
            None => "metadata".to_string(),
        };
        config.set("debug", debug);
        config.set_log_level(RDKafkaLogLevel::Debug);
        self.create(config)
    }

    fn create<X, C>(&self, config: ClientConfig) -> Result<C>
    where
        X: ClientContext + From<KafkaClientContext>,
        C: FromClientConfigAndContext<X>,
    {
        let teller =
            KafkaClientContext::new(format!("kafka {}, topic {}", self.brokers, self.topic));
        config
            .create_with_context(X::from(teller))
            .map_err(|error| self.no_client(error))
    }

    fn config(
        &self,
        job: &str,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", format!("ardea-{job}"));
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in self.security.properties() {
            config.set(name, value);
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        for (name, value) in fixed {
            if self.properties.get(*name).is_some_and(|own| own != value) {
                let what = format!("the property {name} of the Kafka client has to be {value:?}");
                return Err(Error::new(ErrorCode::InvalidConfig, what)
                    .hint("leave it out: the connector's guarantees depend on it"));
            }
            config.set(*name, *value);
        }
        Ok(config)
    }

    fn no_client(&self, error: KafkaError) -> Error {
        let what = format!("cannot create a Kafka client for {}", self.brokers);
        let why = match error {
            // librdkafka's error text would contain the value.
            KafkaError::ClientConfig(_, _, name, _) if is_secret(&name) => {
                format!("the value of the property {name} is not accepted")
            }
            error => error.to_string(),
        };
        Error::new(ErrorCode::InvalidConfig, what).because(why).hint(
            "check the properties that were set, the files of TLS, and the list of brokers (`host:port,…`)",
        )
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: BTreeMap<&str, &str> = self
            .properties
            .iter()
            .map(|(name, value)| match is_secret(name) {
                true => (name.as_str(), "***"),
                false => (name.as_str(), value.as_str()),
            })
            .collect();
        f.debug_struct("Settings")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("security", &self.security)
            .field("properties", &shown)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::consumer::BaseConsumer;

    use super::*;

    fn settings(name: &str, value: &str) -> Settings {
        let mut settings = Settings::new("localhost:9092".into(), "t".into());
        settings.set(name.into(), value.into());
        settings
    }

    #[test]
    fn secrets_are_shown_neither_by_settings_nor_by_the_error_of_a_client() {
        let mut settings = settings("ssl.key.pem", "hush");
        settings.set_tls(Tls::new());
        assert!(!format!("{settings:?}").contains("hush"));
        let made = settings.client::<KafkaClientContext, BaseConsumer<KafkaClientContext>>(
            "job",
            &[],
            &[],
        );
        let Err(error) = made else {
            panic!("that is no key");
        };
        assert_eq!(error.code(), ErrorCode::InvalidConfig);
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    }

    #[test]
    fn another_client_has_the_properties_of_connections_only() {
        let mut settings = settings("sasl.username", "me");
        settings.set("linger.ms".into(), "7".into());
        let other = settings.of_connections();
        assert_eq!(other.property("sasl.username"), Some("me"));
        assert_eq!(other.property("linger.ms"), None);
    }
}
