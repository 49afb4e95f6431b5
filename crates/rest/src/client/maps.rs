//! The maps of a cluster.

use ardea_core::Result;

use super::request::{Asked, encoded};
use super::{Client, MapChanges};
use crate::{MapEntriesView, MapEntryView, MapKeyQuery, MapPutRequest, MapQuery, MapsView};

/// The path of something of a map.
fn path(map: &str, rest: &str) -> String {
    format!("/v1/maps/{}{rest}", encoded(map))
}

fn of_key(key: &str) -> MapKeyQuery {
    MapKeyQuery { key: key.into() }
}

impl Client {
    /// All maps, sorted by name.
    pub async fn maps(&self) -> Result<MapsView> {
        self.get("/v1/maps".into()).await
    }

    /// The entry of a key.
    pub async fn map_entry(&self, map: &str, key: &str) -> Result<MapEntryView> {
        let asked = Asked::get(path(map, "/entry")).query(&of_key(key))?;
        self.ask(asked).await?.json().await
    }

    /// Entries that match, sorted by key.
    pub async fn map_entries(&self, map: &str, query: &MapQuery) -> Result<MapEntriesView> {
        let asked = Asked::get(path(map, "/entries")).query(query)?;
        self.ask(asked).await?.json().await
    }

    /// What happens to entries that match, from now on.
    pub async fn map_changes(&self, map: &str, query: &MapQuery) -> Result<MapChanges> {
        let asked = Asked::get(path(map, "/changes")).query(query)?;
        Ok(MapChanges::of(self.ask(asked).await?))
    }

    /// Gives a key a value; the entry as it is kept.
    pub async fn put_entry(
        &self,
        map: &str,
        key: &str,
        request: &MapPutRequest,
    ) -> Result<MapEntryView> {
        let asked = Asked::put(path(map, "/entry")).query(&of_key(key))?;
        let asked = asked.json(request)?.repeatable();
        self.ask(asked).await?.json().await
    }

    /// Removes what a key has; what it had.
    pub async fn remove_entry(&self, map: &str, key: &str) -> Result<MapEntryView> {
        let asked = Asked::delete(path(map, "/entry")).query(&of_key(key))?;
        self.ask(asked).await?.json().await
    }

    /// Removes all that a map has, and its name.
    pub async fn drop_map(&self, map: &str) -> Result<()> {
        self.command(Asked::delete(path(map, ""))).await
    }
}
