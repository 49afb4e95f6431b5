//! The registry of components for topologies described in files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use ardea_core::{Error, ErrorCode, Result};
use serde::de::DeserializeOwned;

use crate::bolt::Bolt;
use crate::bolt_processor::BoltMaker;
use crate::component::Kind;
use crate::grouping::Choose;
use crate::spout::Spout;
use crate::spout_processor::SpoutMaker;
use crate::topology::Topology;
use crate::tuple::Tuple;
use crate::yaml;

/// The settings of one component in a file.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) component: String,
    pub(crate) line: u64,
    pub(crate) values: serde_json::Value,
}

impl Settings {
    /// Deserializes the settings into a user-defined type: derive `serde::Deserialize`, with
    /// `deny_unknown_fields` and defaults as needed.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] if the settings don't fit `T`. The message names the component
    /// and its line.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        T::deserialize(&self.values).map_err(|error| {
            let Settings {
                component, line, ..
            } = self;
            let what = format!("line {line}: the settings of {component:?} are wrong");
            Error::new(ErrorCode::InvalidConfig, what).because(error)
        })
    }
}

/// A factory of a component's kind from its settings.
type Make = dyn Fn(Arc<Settings>) -> Kind + Send + Sync;

/// Spouts, bolts and groupings by name, from which a file wires topologies (as Storm's Flux and
/// Heron's ECO do).
///
/// ```
/// # use ardea_topology::{Next, Outcome, Outputs, Spout, SpoutCollector, Bolt, Collector, Tuple};
/// use ardea_topology::Registry;
///
/// # struct Count { left: u64 }
/// # impl Spout for Count {
/// #     fn outputs(&self) -> Outputs { Outputs::fields(["number"]) }
/// #     fn next_tuple(&mut self, out: &mut SpoutCollector<'_>) -> Outcome<Next> {
/// #         if self.left == 0 { return Ok(Next::Done) }
/// #         self.left -= 1;
/// #         out.emit([self.left as i64])?;
/// #         Ok(Next::More)
/// #     }
/// # }
/// # struct Print;
/// # impl Bolt for Print {
/// #     fn execute(&mut self, tuple: &Tuple<'_>, _: &mut Collector<'_>) -> Outcome {
/// #         println!("{}", tuple.int("number")?);
/// #         Ok(())
/// #     }
/// # }
/// #[derive(serde::Deserialize)]
/// struct CountSettings {
///     from: u64,
/// }
///
/// let registry = Registry::new()
///     .with_spout("count-down", |settings| {
///         let CountSettings { from } = settings.parse()?;
///         Ok(Count { left: from })
///     })
///     .with_bolt("print", |_| Ok(Print));
///
/// registry.topology("
/// name: launch
/// spouts:
///   - name: seconds
///     component: count-down
///     settings:
///       from: 10
/// bolts:
///   - name: print
///     component: print
///     inputs:
///       - from: seconds
///         grouping: global
/// ")?.run()?;
/// # Ok::<(), ardea_core::Error>(())
/// ```
#[derive(Default)]
pub struct Registry {
    pub(crate) spouts: BTreeMap<String, Box<Make>>,
    pub(crate) bolts: BTreeMap<String, Box<Make>>,
    pub(crate) groupings: BTreeMap<String, Arc<Choose>>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Registry::default()
    }

    /// Adds a spout, or replaces the one of this name; `make` creates each instance from its
    /// settings in the file.
    pub fn with_spout<S, F>(mut self, name: &str, make: F) -> Self
    where
        S: Spout + 'static,
        F: Fn(&Settings) -> Result<S> + Send + Sync + 'static,
    {
        let make = Arc::new(make);
        let kind = move |settings: Arc<Settings>| {
            let make = Arc::clone(&make);
            Kind::Spout(Arc::new(SpoutMaker(move || make(&settings))))
        };
        self.spouts.insert(name.to_string(), Box::new(kind));
        self
    }

    /// Adds a bolt, or replaces the one of this name; `make` creates each instance from its
    /// settings in the file.
    pub fn with_bolt<B, F>(mut self, name: &str, make: F) -> Self
    where
        B: Bolt + 'static,
        F: Fn(&Settings) -> Result<B> + Send + Sync + 'static,
    {
        let make = Arc::new(make);
        let kind = move |settings: Arc<Settings>| {
            let make = Arc::clone(&make);
            Kind::Bolt(Arc::new(BoltMaker(move || make(&settings))))
        };
        self.bolts.insert(name.to_string(), Box::new(kind));
        self
    }

    /// Adds a custom grouping, see [`BoltDeclarer::custom`](crate::BoltDeclarer::custom).
    pub fn with_grouping(
        mut self,
        name: &str,
        choose: impl Fn(&Tuple<'_>, u32) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.groupings.insert(name.to_string(), Arc::new(choose));
        self
    }

    /// Reads a topology from a YAML text; the guide's chapter on topologies has all keys.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidConfig`] for an invalid description, with the line; otherwise those of
    /// [`TopologyBuilder::build`](crate::TopologyBuilder::build).
    pub fn topology(&self, yaml: &str) -> Result<Topology> {
        yaml::read(self, yaml)
    }

    /// Reads a topology from a YAML file.
    ///
    /// # Errors
    /// [`ErrorCode::ReadFailed`] if the file can't be read; otherwise those of
    /// [`topology`](Registry::topology).
    pub fn topology_from(&self, path: impl AsRef<Path>) -> Result<Topology> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|error| {
            let what = format!("the topology {} could not be read", path.display());
            Error::new(ErrorCode::ReadFailed, what)
                .because(error)
                .hint("check the path and its permissions")
        })?;
        self.topology(&text)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("spouts", &self.spouts.keys())
            .field("bolts", &self.bolts.keys())
            .field("groupings", &self.groupings.keys())
            .finish()
    }
}
