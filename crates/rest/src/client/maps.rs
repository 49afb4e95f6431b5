//! Requests about the maps of a cluster.

use ardea_core::Result;

use super::request::{ApiRequest, encoded};
use super::{Client, MapChanges};
use crate::{MapEntriesView, MapEntryView, MapKeyQuery, MapPutRequest, MapQuery, MapsView};

/// Returns the URL path of a resource of a map.
fn path(map: &str, rest: &str) -> String {
    format!("/v1/maps/{}{rest}", encoded(map))
}

fn of_key(key: &str) -> MapKeyQuery {
    MapKeyQuery { key: key.into() }
}

impl Client {
    /// Returns all maps, sorted by name.
    pub async fn maps(&self) -> Result<MapsView> {
        self.get("/v1/maps".into()).await
    }

    /// Returns the map's entry of a key.
    pub async fn map_entry(&self, map: &str, key: &str) -> Result<MapEntryView> {
        let asked = ApiRequest::get(path(map, "/entry")).query(&of_key(key))?;
        self.ask(asked).await?.json().await
    }

    /// Returns the entries of a map that match `query`, sorted by key.
    pub async fn map_entries(&self, map: &str, query: &MapQuery) -> Result<MapEntriesView> {
        let asked = ApiRequest::get(path(map, "/entries")).query(query)?;
        self.ask(asked).await?.json().await
    }

    /// Streams the changes of the map's entries that match `query`, starting now.
    pub async fn map_changes(&self, map: &str, query: &MapQuery) -> Result<MapChanges> {
        let asked = ApiRequest::get(path(map, "/changes")).query(query)?;
        Ok(MapChanges::of(self.ask(asked).await?))
    }

    /// Sets the value of a key, and returns the stored entry.
    pub async fn put_entry(
        &self,
        map: &str,
        key: &str,
        request: &MapPutRequest,
    ) -> Result<MapEntryView> {
        let asked = ApiRequest::put(path(map, "/entry")).query(&of_key(key))?;
        let asked = asked.json(request)?.repeatable();
        self.ask(asked).await?.json().await
    }

    /// Removes the entry of a key, and returns it.
    pub async fn remove_entry(&self, map: &str, key: &str) -> Result<MapEntryView> {
        let asked = ApiRequest::delete(path(map, "/entry")).query(&of_key(key))?;
        self.ask(asked).await?.json().await
    }

    /// Removes a map with all its entries.
    pub async fn drop_map(&self, map: &str) -> Result<()> {
        self.command(ApiRequest::delete(path(map, ""))).await
    }
}
