//! The schemas that an instance has received from a registry.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ardea_core::{Error, ErrorCode, InstanceContext, Result};

use super::{
    RegisteredSchema, RegistryAnswer, RegistryClient, RegistryRequest, SchemaKind, SchemaRegistry,
};

/// The time after which an unknown schema is requested again.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// The schemas of an instance by their ids, parsed as `S`.
pub struct SchemaCache<S> {
    registry: SchemaRegistry,
    kind: SchemaKind,
    client: Option<RegistryClient>,
    schemas: HashMap<u32, CachedSchema<S>>,
}

enum CachedSchema<S> {
    Requested,
    Known(S),
    /// The registry has no such schema, or it cannot be parsed; contains the reason.
    Refused {
        reason: String,
        at: Instant,
    },
}

impl<S> SchemaCache<S> {
    pub fn new(registry: SchemaRegistry, kind: SchemaKind) -> Self {
        SchemaCache {
            registry,
            kind,
            client: None,
            schemas: HashMap::new(),
        }
    }

    /// Starts the client.
    pub fn attach(&mut self, context: &InstanceContext) -> Result<()> {
        self.client = Some(RegistryClient::start(&self.registry, context)?);
        Ok(())
    }

    /// Returns true if it is known whether there is a schema with this id. Otherwise requests it,
    /// and waits up to 100 ms.
    ///
    /// # Errors
    /// Those of the registry.
    #[inline]
    pub fn is_ready(
        &mut self,
        id: u32,
        parse: impl Fn(&RegisteredSchema) -> std::result::Result<S, String>,
    ) -> Result<bool> {
        match self.schemas.get(&id) {
            Some(CachedSchema::Known(_)) => Ok(true),
            _ => self.request(id, parse),
        }
    }

    #[cold]
    fn request(
        &mut self,
        id: u32,
        parse: impl Fn(&RegisteredSchema) -> std::result::Result<S, String>,
    ) -> Result<bool> {
        let Some(client) = &self.client else {
            let what = "the client of a schema registry was not started";
            return Err(Error::new(ErrorCode::Internal, what));
        };
        match self.schemas.get(&id) {
            Some(CachedSchema::Refused { at, .. }) if at.elapsed() < UNKNOWN_FOR => {
                return Ok(true);
            }
            Some(CachedSchema::Requested) => {}
            _ => {
                client.request(RegistryRequest::Schema(id));
                self.schemas.insert(id, CachedSchema::Requested);
            }
        }
        let Some(RegistryAnswer::Schema(answered, schema)) = client.answer()? else {
            return Ok(false);
        };
        let known = match schema {
            Ok(schema) if schema.kind != self.kind.name() => Err(format!(
                "its schema, {answered}, is {} and not {}",
                schema.kind,
                self.kind.name()
            )),
            Ok(schema) => parse(&schema)
                .map_err(|why| format!("its schema, {answered}, cannot be used: {why}")),
            Err(why) => Err(format!("the registry has no schema {answered}: {why}")),
        };
        let cached = match known {
            Ok(schema) => CachedSchema::Known(schema),
            Err(reason) => CachedSchema::Refused {
                reason,
                at: Instant::now(),
            },
        };
        self.schemas.insert(answered, cached);
        Ok(answered == id)
    }

    /// Returns the schema with an id.
    ///
    /// # Errors
    /// The reason why there is none.
    #[inline]
    pub fn get(&self, id: u32) -> std::result::Result<&S, String> {
        match self.schemas.get(&id) {
            Some(CachedSchema::Known(schema)) => Ok(schema),
            Some(CachedSchema::Refused { reason, .. }) => Err(reason.clone()),
            Some(CachedSchema::Requested) | None => Err(format!("its schema, {id}, is unknown")),
        }
    }
}
