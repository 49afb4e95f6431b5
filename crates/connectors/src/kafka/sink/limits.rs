//! Message size limits of the producer and of the topic.
//!
//! A buffered message is part of a checkpoint before a broker sees it. A message that the broker
//! rejects would be rejected again after each restart, so the sink refuses it before it is
//! buffered.

use std::time::Duration;

use ardea_core::Result;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};

use super::answers::{is_passing, wait_for};
use crate::kafka::client_context::KafkaClientContext;
use crate::kafka::settings::Settings;

/// Timeout of a request to brokers.
const ANSWER: Duration = Duration::from_millis(900);
/// librdkafka's default of [`PRODUCERS_LIMIT`].
const PRODUCER: usize = 1_000_000;
/// Producer property with the maximum size of a request.
pub(super) const PRODUCERS_LIMIT: &str = "message.max.bytes";
/// Topic setting with the maximum size of a message.
const TOPICS_LIMIT: &str = "max.message.bytes";
/// Smallest value that librdkafka accepts for [`PRODUCERS_LIMIT`].
const LEAST: usize = 1_000;
/// Upper bound of a message's overhead besides key and value: batch header and lengths.
const OVERHEAD: usize = 128;

/// Size limits of messages, requested from brokers once.
pub(super) struct Limits {
    settings: Settings,
    job: String,
    admin: Option<AdminClient<KafkaClientContext>>,
    /// Limit of the topic in bytes. `None` if it is not known yet, `Some(None)` if no limit
    /// applies.
    topic: Option<Option<usize>>,
}

impl Limits {
    pub fn new(settings: &Settings, job: &str) -> Self {
        // The limit applies to the compressed size, which is known only when the message is sent.
        let is_packed = ["compression.type", "compression.codec"]
            .iter()
            .any(|name| {
                let packing = settings.property(name);
                packing.is_some_and(|packing| packing != "none")
            });
        Limits {
            settings: settings.clone(),
            job: job.to_string(),
            admin: None,
            topic: is_packed.then_some(None),
        }
    }

    /// Requests the limits if they are not known yet; returns true once they are known. Waits at
    /// most a second for the brokers.
    ///
    /// # Errors
    /// An error if no client can be created.
    pub fn are_known(&mut self) -> Result<bool> {
        if self.topic.is_some() {
            return Ok(true);
        }
        if self.admin.is_none() {
            self.admin = Some(self.settings.client(&self.job, &[], &[])?);
        }
        let Some(admin) = &self.admin else {
            return Ok(false);
        };
        let topic = ResourceSpecifier::Topic(&self.settings.topic);
        let options = AdminOptions::new().request_timeout(Some(ANSWER));
        let answer = wait_for(admin.describe_configs([&topic], &options));
        let limit = match answer {
            Ok(answers) => answers.into_iter().flatten().find_map(|config| {
                let limit = config.get(TOPICS_LIMIT)?.value.as_deref()?;
                limit.parse().ok()
            }),
            Err(error) if is_passing(&error) => return Ok(false),
            // A client without the permission finds out when it sends.
            Err(_) => None,
        };
        self.topic = Some(limit);
        self.admin = None;
        Ok(true)
    }

    /// Returns true if a message with this many bytes of key and value can be sent.
    pub fn fits(&self, bytes: usize) -> bool {
        let topic = self.topic.flatten().unwrap_or(usize::MAX);
        bytes <= self.of_producer() && bytes.saturating_add(OVERHEAD) <= topic
    }

    /// Returns the producer limit that keeps batches below the topic's limit; `None` if the
    /// producer's own limit suffices.
    pub fn producer_limit(&self) -> Option<String> {
        let topic = self.topic.flatten()?.max(LEAST);
        (topic < self.of_producer()).then(|| topic.to_string())
    }

    fn of_producer(&self) -> usize {
        let own = self.settings.property(PRODUCERS_LIMIT);
        own.and_then(|own| own.parse().ok()).unwrap_or(PRODUCER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(properties: &[(&str, &str)], topic: Option<usize>) -> Limits {
        let mut settings = Settings::new("localhost:9092".into(), "t".into());
        for (name, value) in properties {
            settings.set((*name).into(), (*value).into());
        }
        let mut limits = Limits::new(&settings, "job");
        limits.topic = limits.topic.or(Some(topic));
        limits
    }

    #[test]
    fn a_message_has_to_fit_the_producer_and_with_its_head_the_topic() {
        let default = limits(&[], None);
        assert!(default.fits(PRODUCER) && !default.fits(PRODUCER + 1));
        assert_eq!(default.producer_limit(), None);
        let small = limits(&[], Some(5_000));
        assert!(small.fits(5_000 - OVERHEAD) && !small.fits(5_001 - OVERHEAD));
        assert_eq!(small.producer_limit().as_deref(), Some("5000"));
        let own = limits(&[(PRODUCERS_LIMIT, "2000")], Some(5_000));
        assert!(own.fits(2_000) && !own.fits(2_001));
        assert_eq!(own.producer_limit(), None, "its own limit is lower");
        let tiny = limits(&[], Some(10));
        assert_eq!(tiny.producer_limit().as_deref(), Some("1000"));
        assert!(!tiny.fits(0));
    }

    #[test]
    fn what_is_packed_is_bounded_by_the_producer_alone() {
        let mut packed = limits(&[("compression.type", "gzip")], Some(5_000));
        assert!(packed.are_known().unwrap(), "no request is needed");
        assert!(packed.fits(PRODUCER) && !packed.fits(PRODUCER + 1));
        assert_eq!(packed.producer_limit(), None);
    }
}
