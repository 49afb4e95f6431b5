//! Topologies from YAML: the schema of the file, and its conversion.

mod process;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ardea_config::{nearest, parse_bytes, parse_duration};
use ardea_core::{Error, ErrorCode, Isolation, Result};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::builder::{Reliability, TopologyBuilder};
use crate::component::{Kind, ResourceRequirements, Subscription};
use crate::grouping::Grouping;
use crate::outputs::DEFAULT_STREAM;
use crate::registry::{Registry, Settings};
use crate::topology::Topology;
use process::{ProcessKeys, StreamKeys};

/// The contents of a whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: String,
    #[serde(default)]
    config: Config,
    spouts: Vec<Spout>,
    #[serde(default)]
    bolts: Vec<Bolt>,
}

/// Settings of the whole topology.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Config {
    reliability: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "pending")]
    max_spout_pending: Option<NonZeroUsize>,
    message_timeout: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spout {
    name: Spanned<String>,
    component: Spanned<String>,
    #[serde(default = "one", deserialize_with = "parallelism")]
    parallelism: u32,
    isolation: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "cpu")]
    cpu: Option<f64>,
    memory: Option<Spanned<String>>,
    disk: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    outputs: Option<Vec<StreamKeys>>,
    env: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    settings: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bolt {
    name: Spanned<String>,
    component: Spanned<String>,
    #[serde(default = "one", deserialize_with = "parallelism")]
    parallelism: u32,
    isolation: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "cpu")]
    cpu: Option<f64>,
    memory: Option<Spanned<String>>,
    disk: Option<Spanned<String>>,
    tick_every: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    outputs: Option<Vec<StreamKeys>>,
    env: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    settings: serde_json::Map<String, serde_json::Value>,
    inputs: Vec<Input>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    from: Spanned<String>,
    stream: Option<String>,
    grouping: Spanned<String>,
    fields: Option<Vec<String>>,
    function: Option<Spanned<String>>,
    latency: Option<Spanned<String>>,
}

fn one() -> u32 {
    1
}

fn parallelism<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u32, D::Error> {
    from.deserialize_any(Number {
        key: "parallelism",
        may_be: "a whole number of instances, from 1 on",
        read: |text| text.parse().ok(),
    })
}

fn pending<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<NonZeroUsize>, D::Error> {
    let number = from.deserialize_any(Number {
        key: "max_spout_pending",
        may_be: "a whole number of messages, from 1 on",
        read: |text| text.parse().ok(),
    });
    number.map(Some)
}

fn cpu<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<f64>, D::Error> {
    let number = from.deserialize_any(Number {
        key: "cpu",
        may_be: "a number of cores for each instance, such as 0.5 or 2",
        read: |text| text.parse().ok(),
    });
    number.map(Some)
}

/// A reader of the number under a key. An error names the key and the permitted values.
struct Number<T> {
    key: &'static str,
    may_be: &'static str,
    read: fn(&str) -> Option<T>,
}

impl<T> Number<T> {
    fn of<E: de::Error>(&self, text: &str) -> std::result::Result<T, E> {
        let Number { key, may_be, read } = self;
        read(text).ok_or_else(|| E::custom(format!("{key} can't be {text}, it is {may_be}")))
    }
}

impl<T> Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.may_be)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> std::result::Result<T, E> {
        self.of(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> std::result::Result<T, E> {
        self.of(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> std::result::Result<T, E> {
        self.of(&number.to_string())
    }

    fn visit_bool<E: de::Error>(self, truth: bool) -> std::result::Result<T, E> {
        self.of(&truth.to_string())
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<T, E> {
        self.of("nothing")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<T, E> {
        // A quoted value is no number, even if it consists of digits.
        let Number { key, may_be, .. } = self;
        Err(E::custom(format!(
            "{key} can't be {text:?}, it is {may_be}"
        )))
    }
}

/// The groupings, by name.
const GROUPINGS: [&str; 8] = [
    "shuffle",
    "local-or-shuffle",
    "fields",
    "all",
    "global",
    "none",
    "direct",
    "custom",
];

/// Creates the topology that `text` describes, from the components of `registry`.
pub(crate) fn read(registry: &Registry, text: &str) -> Result<Topology> {
    let description: Description = serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        let plain = error.without_snippet().to_string();
        // The message repeats the place in other words.
        let said = plain.split(" at line ").next().unwrap_or(&plain);
        let said = said
            .split("line ")
            .find(|part| part.contains(char::is_alphabetic));
        let said = said.unwrap_or("it can't be read").trim();
        let error = wrong(line, said);
        match said.contains("missing field `grouping`") {
            true => error.hint(format!("it is one of {}", GROUPINGS.join(", "))),
            false => error,
        }
    })?;
    let mut builder = TopologyBuilder::new(description.name);
    configure(&mut builder, &description.config)?;
    for spout in description.spouts {
        let keys = ProcessKeys {
            command: spout.command,
            outputs: spout.outputs,
            env: spout.env,
        };
        let kind = match keys.component("spout", &spout.component, &spout.settings)? {
            Some(process) => Kind::Spout(Arc::new(process)),
            None => {
                let make = find(&registry.spouts, &spout.component, "spout")?;
                make(settings(&spout.name, spout.settings))
            }
        };
        let component = builder.add(&spout.name.value, spout.parallelism, kind);
        component.line = Some(line(&spout.name));
        component.isolation = isolation(spout.isolation.as_ref())?;
        component.wants = wants(spout.cpu, spout.memory.as_ref(), spout.disk.as_ref())?;
    }
    for bolt in description.bolts {
        let keys = ProcessKeys {
            command: bolt.command,
            outputs: bolt.outputs,
            env: bolt.env,
        };
        let kind = match keys.component("bolt", &bolt.component, &bolt.settings)? {
            Some(process) => Kind::Bolt(Arc::new(process)),
            None => {
                let make = find(&registry.bolts, &bolt.component, "bolt")?;
                make(settings(&bolt.name, bolt.settings))
            }
        };
        let inputs = bolt
            .inputs
            .iter()
            .map(|input| subscription(registry, input));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let tick = bolt.tick_every.as_ref().map(duration).transpose()?;
        let component = builder.add(&bolt.name.value, bolt.parallelism, kind);
        component.line = Some(line(&bolt.name));
        component.isolation = isolation(bolt.isolation.as_ref())?;
        component.wants = wants(bolt.cpu, bolt.memory.as_ref(), bolt.disk.as_ref())?;
        component.inputs = inputs;
        component.tick = tick;
    }
    builder.build()
}

fn line<T>(at: &Spanned<T>) -> u64 {
    at.referenced.line()
}

fn wrong(line: u64, what: &str) -> Error {
    Error::new(ErrorCode::InvalidConfig, format!("line {line}: {what}"))
}

/// Returns the value of `word` in `known`; an error lists the alternatives.
fn choose<'a, T>(
    word: &Spanned<String>,
    what: &str,
    known: impl IntoIterator<Item = (&'a str, T)>,
) -> Result<T> {
    let mut names = Vec::new();
    for (name, value) in known {
        if name == word.value {
            return Ok(value);
        }
        names.push(name);
    }
    let error = wrong(line(word), &format!("there is no {what} {:?}", word.value));
    let list = match &names[..] {
        [] => format!("no {what} is registered"),
        names => format!("there are {}", names.join(", ")),
    };
    Err(match nearest(&word.value, names.iter().copied()) {
        Some(meant) => error.hint(format!("did you mean {meant:?}? {list}")),
        None => error.hint(list),
    })
}

fn find<'r, T>(
    known: &'r std::collections::BTreeMap<String, T>,
    name: &Spanned<String>,
    what: &str,
) -> Result<&'r T> {
    let known = known.iter().map(|(name, value)| (name.as_str(), value));
    choose(name, what, known)
}

fn duration(text: &Spanned<String>) -> Result<Duration> {
    parse_duration(&text.value).map_err(|error| {
        wrong(line(text), &format!("{:?} is no duration", text.value))
            .because(error)
            .hint("write it like 500ms, 30s or 5m")
    })
}

fn isolation(word: Option<&Spanned<String>>) -> Result<Isolation> {
    let known = [
        ("tasklet", Isolation::Tasklet),
        ("thread", Isolation::Thread),
        ("process", Isolation::Process),
    ];
    word.map_or(Ok(Isolation::Tasklet), |word| {
        choose(word, "isolation", known)
    })
}

fn wants(
    cpu: Option<f64>,
    memory: Option<&Spanned<String>>,
    disk: Option<&Spanned<String>>,
) -> Result<ResourceRequirements> {
    let size = |text: &Spanned<String>| {
        parse_bytes(&text.value).map_err(|error| {
            wrong(line(text), &format!("{:?} is no size", text.value))
                .because(error)
                .hint("write it like 512MiB or 10GB")
        })
    };
    Ok(ResourceRequirements {
        cpu_cores: cpu,
        memory_bytes: memory.map(size).transpose()?,
        disk_bytes: disk.map(size).transpose()?,
    })
}

fn configure(builder: &mut TopologyBuilder, config: &Config) -> Result<()> {
    if let Some(word) = &config.reliability {
        let known = [
            ("at-most-once", Reliability::AtMostOnce),
            ("at-least-once", Reliability::AtLeastOnce),
        ];
        builder.reliability(choose(word, "reliability", known)?);
    }
    if let Some(most) = config.max_spout_pending {
        builder.max_spout_pending(most);
    }
    if let Some(timeout) = &config.message_timeout {
        builder.message_timeout(duration(timeout)?);
    }
    Ok(())
}

fn settings(
    component: &Spanned<String>,
    values: serde_json::Map<String, serde_json::Value>,
) -> Arc<Settings> {
    Arc::new(Settings {
        component: component.value.clone(),
        line: line(component),
        values: serde_json::Value::Object(values),
    })
}

fn subscription(registry: &Registry, input: &Input) -> Result<Subscription> {
    let at = line(&input.grouping);
    let known = GROUPINGS.map(|name| (name, name));
    let grouping = match choose(&input.grouping, "grouping", known)? {
        "local-or-shuffle" => Grouping::LocalOrShuffle,
        "all" => Grouping::All,
        "global" => Grouping::Global,
        "none" => Grouping::None,
        "direct" => Grouping::Direct,
        "fields" => {
            let fields = input.fields.as_ref().ok_or_else(|| {
                wrong(at, "a grouping by fields names none")
                    .hint("add the fields, such as fields: [word]")
            })?;
            Grouping::Fields(fields.iter().map(|field| field.as_str().into()).collect())
        }
        "custom" => {
            let function = input.function.as_ref().ok_or_else(|| {
                wrong(at, "a custom grouping names no function")
                    .hint("add the name of a registered one, such as function: by-length")
            })?;
            Grouping::Custom(Arc::clone(find(
                &registry.groupings,
                function,
                "grouping function",
            )?))
        }
        _ => Grouping::Shuffle,
    };
    let unused = match &grouping {
        Grouping::Fields(_) => input.function.is_some().then_some("function"),
        Grouping::Custom(_) => input.fields.is_some().then_some("fields"),
        _ if input.fields.is_some() => Some("fields"),
        _ => input.function.is_some().then_some("function"),
    };
    if let Some(unused) = unused {
        let what = format!("a grouping {:?} has no {unused}", input.grouping.value);
        return Err(wrong(at, &what).hint(format!("remove {unused}, or choose another grouping")));
    }
    Ok(Subscription {
        component: input.from.value.as_str().into(),
        stream: input.stream.as_deref().unwrap_or(DEFAULT_STREAM).into(),
        grouping,
        latency: input.latency.as_ref().map(duration).transpose()?,
        line: Some(line(&input.from)),
    })
}
