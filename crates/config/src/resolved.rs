//! The values of all settings, with their origins.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::time::Duration;

use super::origin::Origin;
use super::report::{Report, ReportedSetting};
use super::resolver::Resolver;
use super::schema::Schema;
use super::setting::Setting;
use super::value::Value;
use ardea_core::{Error, ErrorCode, Result};

/// Every setting of a schema with its value and origin; created by a [`Resolver`].
///
/// The typed getters fail with [`ErrorCode::Internal`] if the schema has no such key or the key has
/// another kind: this is a fault of the program. The getters search linearly; read settings once,
/// at start.
#[derive(Clone, Debug)]
pub struct Resolved {
    settled: Vec<ResolvedValue>,
}

/// A setting with its value and origin.
#[derive(Clone, Debug)]
pub(super) struct ResolvedValue {
    pub(super) setting: &'static Setting,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl Resolved {
    pub(super) fn new(settled: Vec<ResolvedValue>) -> Self {
        Resolved { settled }
    }

    /// Returns all settings of `schema` at their defaults.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`] if the schema itself is invalid.
    pub fn defaults(schema: &Schema) -> Result<Self> {
        Resolver::new(schema).resolve()
    }

    /// Returns the value of a setting, if the key exists.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.find(key).map(|entry| &entry.value)
    }

    /// Returns the origin of a setting's value, if the key exists.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.find(key).map(|entry| &entry.origin)
    }

    /// Returns all values that are not defaults, by key, each as the text that sets it. Another
    /// process can resolve the same settings from these texts.
    pub fn non_defaults(&self) -> BTreeMap<String, String> {
        let written = self
            .settled
            .iter()
            .filter(|entry| entry.origin != Origin::Default);
        let pair = |entry: &ResolvedValue| (entry.setting.key.to_string(), entry.value.to_string());
        written.map(pair).collect()
    }

    /// Returns a setting of kind [`Kind::Count`](super::Kind::Count).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn count(&self, key: &str) -> Result<u64> {
        match self.known(key)? {
            Value::Count(count) => Ok(*count),
            other => Err(other_kind(key, "a count", other)),
        }
    }

    /// Returns a setting of kind [`Kind::CountOrAuto`](super::Kind::CountOrAuto); `None` is `auto`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn count_or_auto(&self, key: &str) -> Result<Option<u64>> {
        match self.known(key)? {
            Value::Count(count) => Ok(Some(*count)),
            Value::Auto => Ok(None),
            other => Err(other_kind(key, "a count or auto", other)),
        }
    }

    /// Returns a setting of kind [`Kind::Duration`](super::Kind::Duration).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn duration(&self, key: &str) -> Result<Duration> {
        match self.known(key)? {
            Value::Duration(duration) => Ok(*duration),
            other => Err(other_kind(key, "a duration", other)),
        }
    }

    /// Returns a setting of kind [`Kind::DurationOrAuto`](super::Kind::DurationOrAuto); `None` is
    /// `auto`.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn duration_or_auto(&self, key: &str) -> Result<Option<Duration>> {
        match self.known(key)? {
            Value::Duration(duration) => Ok(Some(*duration)),
            Value::Auto => Ok(None),
            other => Err(other_kind(key, "a duration or auto", other)),
        }
    }

    /// Returns a setting of kind [`Kind::Bytes`](super::Kind::Bytes), in bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn bytes(&self, key: &str) -> Result<u64> {
        match self.known(key)? {
            Value::Bytes(bytes) => Ok(*bytes),
            other => Err(other_kind(key, "a size", other)),
        }
    }

    /// Returns a setting of kind [`Kind::Flag`](super::Kind::Flag).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn flag(&self, key: &str) -> Result<bool> {
        match self.known(key)? {
            Value::Flag(flag) => Ok(*flag),
            other => Err(other_kind(key, "a flag", other)),
        }
    }

    /// Returns a setting of kind [`Kind::Text`](super::Kind::Text).
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn text(&self, key: &str) -> Result<&str> {
        match self.known(key)? {
            Value::Text(text) => Ok(text),
            other => Err(other_kind(key, "a text", other)),
        }
    }

    /// Returns a setting of kind [`Kind::Choice`](super::Kind::Choice): one of its words.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::Internal`], see [`Resolved`].
    pub fn choice(&self, key: &str) -> Result<&'static str> {
        match self.known(key)? {
            Value::Choice(word) => Ok(word),
            other => Err(other_kind(key, "a choice", other)),
        }
    }

    /// Returns the error for a value that the setting's kind allows but that cannot be used, for
    /// the reason `why`. The error contains the key, the value, its origin, and a correct form.
    pub fn refuse(&self, key: &str, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        match self.find(key) {
            Some(entry) => refused(entry.setting, &entry.value.to_string(), &entry.origin, why),
            None => no_such(key),
        }
    }

    /// Returns all settings as plain data, for display or serialization.
    pub fn report(&self) -> Report {
        let report = |entry: &ResolvedValue| ReportedSetting {
            key: entry.setting.key,
            value: entry.value.clone(),
            source: entry.origin.to_string(),
            default: entry.setting.default,
            kind: entry.setting.kind.to_string(),
            variable: entry.setting.variable(),
            about: entry.setting.about,
            trades: entry.setting.trades,
        };
        Report {
            settings: self.settled.iter().map(report).collect(),
        }
    }

    fn find(&self, key: &str) -> Option<&ResolvedValue> {
        self.settled.iter().find(|entry| entry.setting.key == key)
    }

    fn known(&self, key: &str) -> Result<&Value> {
        self.value(key).ok_or_else(|| no_such(key))
    }
}

/// Returns the error for a wrong value of `setting`.
pub(super) fn refused(
    setting: &Setting,
    text: &str,
    origin: &Origin,
    why: impl Into<Box<dyn StdError + Send + Sync>>,
) -> Error {
    let what = format!("{} cannot be {text:?} (from {origin})", setting.key);
    Error::new(ErrorCode::InvalidConfig, what)
        .because(why)
        .hint(setting.advice(origin))
}

fn no_such(key: &str) -> Error {
    let what = format!("the schema has no setting {key}");
    Error::new(ErrorCode::Internal, what).hint("please report this")
}

fn other_kind(key: &str, asked: &str, found: &Value) -> Error {
    let what = format!("the setting {key} was asked for as {asked}, but it is {found:?}");
    Error::new(ErrorCode::Internal, what).hint("please report this")
}
