//! How to reach brokers: what source and sink have in common.

use std::collections::BTreeMap;

use ardea_core::{Error, ErrorCode, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::{ClientConfig, ClientContext};

use crate::teller::Teller;

/// Brokers, a topic and settings of librdkafka.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub brokers: String,
    pub topic: String,
    properties: BTreeMap<String, String>,
}

impl Settings {
    pub fn new(brokers: String, topic: String) -> Self {
        Settings {
            brokers,
            topic,
            properties: BTreeMap::new(),
        }
    }

    pub fn set(&mut self, name: String, value: String) {
        self.properties.insert(name, value);
    }

    /// What a property was set to.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    /// A client with these settings, over `defaults`, under `fixed` ones that what is promised rests on.
    pub fn client<X, C>(
        &self,
        job: &str,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<C>
    where
        X: ClientContext + From<Teller>,
        C: FromClientConfigAndContext<X>,
    {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config.set("client.id", format!("ardea-{job}"));
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        for (name, value) in fixed {
            if self.properties.get(*name).is_some_and(|own| own != value) {
                let what = format!("the property {name} of the Kafka client has to be {value:?}");
                return Err(Error::new(ErrorCode::InvalidConfig, what)
                    .hint("leave it out: what the connector promises rests on it"));
            }
            config.set(*name, *value);
        }
        let teller = Teller::new(format!("kafka {}, topic {}", self.brokers, self.topic));
        config
            .create_with_context(X::from(teller))
            .map_err(|error| {
                Error::new(
                    ErrorCode::InvalidConfig,
                    format!("no Kafka client can be made for {}", self.brokers),
                )
                .because(error)
                .hint("check the properties that were set, and the list of brokers (`host:port,…`)")
            })
    }
}
