//! How large messages may be: what the producer may send, and what the topic takes.
//!
//! A message that waits for its epoch to be committed is in a snapshot by the time the broker sees it. One that the broker does not take would then be
//! refused again after each restart, so it is not taken in the first place.

use std::time::Duration;

use ardea_core::Result;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};

use super::answers::{is_passing, wait_for};
use crate::kafka::settings::Settings;
use crate::kafka::teller::Teller;

/// How long brokers may take to answer.
const ANSWER: Duration = Duration::from_millis(900);
/// What a producer sends at most unless told.
const PRODUCER: usize = 1_000_000;
/// The property that says so.
pub(super) const PRODUCERS_LIMIT: &str = "message.max.bytes";
/// What a topic's limit is called.
const TOPICS_LIMIT: &str = "max.message.bytes";
/// The least that a producer can be told.
const LEAST: usize = 1_000;
/// What a message takes besides its key and its value, at most: the head of its batch, and lengths.
const OVERHEAD: usize = 128;

/// Knows the limits, once brokers have told.
pub(super) struct Limits {
    settings: Settings,
    job: String,
    admin: Option<AdminClient<Teller>>,
    /// The limit of the topic, if it has one that counts, once that is known.
    topic: Option<Option<usize>>,
}

impl Limits {
    pub fn new(settings: &Settings, job: &str) -> Self {
        // What is packed can be larger before: whether the topic takes it is seen when it is sent.
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

    /// Asks brokers, if nobody has yet; false if they have not answered within a second.
    ///
    /// # Errors
    /// If no client can be made.
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
            // Who may not ask finds out when it sends.
            Err(_) => None,
        };
        self.topic = Some(limit);
        self.admin = None;
        Ok(true)
    }

    /// Whether a message with so many bytes of key and value can be sent.
    pub fn fits(&self, bytes: usize) -> bool {
        let topic = self.topic.flatten().unwrap_or(usize::MAX);
        bytes <= self.of_producer() && bytes.saturating_add(OVERHEAD) <= topic
    }

    /// What a producer has to be told so that it makes no batch that the topic does not take; nothing if it makes none.
    pub fn to_tell(&self) -> Option<String> {
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
        assert_eq!(default.to_tell(), None);
        let small = limits(&[], Some(5_000));
        assert!(small.fits(5_000 - OVERHEAD) && !small.fits(5_001 - OVERHEAD));
        assert_eq!(small.to_tell().as_deref(), Some("5000"));
        let own = limits(&[(PRODUCERS_LIMIT, "2000")], Some(5_000));
        assert!(own.fits(2_000) && !own.fits(2_001));
        assert_eq!(own.to_tell(), None, "it has been told less");
        let tiny = limits(&[], Some(10));
        assert_eq!(tiny.to_tell().as_deref(), Some("1000"));
        assert!(!tiny.fits(0));
    }

    #[test]
    fn what_is_packed_is_bounded_by_the_producer_alone() {
        let mut packed = limits(&[("compression.type", "gzip")], Some(5_000));
        assert!(packed.are_known().unwrap(), "nobody has to be asked");
        assert!(packed.fits(PRODUCER) && !packed.fits(PRODUCER + 1));
        assert_eq!(packed.to_tell(), None);
    }
}
