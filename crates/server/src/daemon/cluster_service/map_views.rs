//! Conversion of grid maps for the REST interface.

use ardea_grid::cluster::{JsonChange, JsonEntries, JsonEntry, MapSummary};
use ardea_rest::{MapEntriesView, MapEntryView, MapEvent, MapView};

pub(super) fn map_view(map: MapSummary) -> MapView {
    MapView {
        name: map.name,
        keys: map.keys,
        values: map.values,
        entries: map.entries,
        bytes: map.bytes,
    }
}

pub(super) fn entry_view(entry: JsonEntry) -> MapEntryView {
    MapEntryView {
        key: entry.key,
        value: entry.value,
    }
}

pub(super) fn entries_view(found: JsonEntries) -> MapEntriesView {
    MapEntriesView {
        entries: found.entries.into_iter().map(entry_view).collect(),
        more: found.more,
    }
}

pub(super) fn event_of(change: JsonChange) -> MapEvent {
    match change {
        JsonChange::Added(entry) => MapEvent::Added(entry_view(entry)),
        JsonChange::Updated(entry) => MapEvent::Updated(entry_view(entry)),
        JsonChange::Removed { key } => MapEvent::Removed { key },
        JsonChange::Missed => MapEvent::Missed,
    }
}
