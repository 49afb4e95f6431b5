// The maps of the cluster: list, query, change.

import { useEffect, useState } from "preact/hooks";
import { command, RequestError, segment, type Query } from "../api/client";
import type { MapEntriesView, MapsView as MapsList } from "../api/types";
import { Empty, ErrorBox, Loading, Name, Scroll } from "../components/basics";
import { ActionDialog, type Action } from "../components/dialog";
import { bytes, plural, shortened } from "../format";
import { useResource } from "../live";

const PAGE = 100;
const MOST = 10_000;

export function MapsView({ map }: { map: string | null }) {
  const maps = useResource<MapsList>("/maps", {}, 5_000);
  const [action, setAction] = useState<Action | null>(null);
  const [turn, setTurn] = useState(0);
  const close = () => {
    setAction(null);
    setTurn((before) => before + 1);
    maps.reload();
  };
  return (
    <>
      <h1>Maps</h1>
      {maps.error !== null && <ErrorBox error={maps.error} />}
      {maps.data === null && maps.error === null && <Loading what="the maps" />}
      {maps.data?.maps.length === 0 && (
        <Empty>
          <p>There are no maps. Jobs create them, with the connector for the cluster's maps.</p>
        </Empty>
      )}
      {maps.data !== null && maps.data.maps.length > 0 && (
        <>
          <Scroll>
            <table>
              <thead>
                <tr>
                  <th scope="col">Map</th>
                  <th scope="col">Keys</th>
                  <th scope="col">Values</th>
                  <th scope="col" class="right">
                    Entries
                  </th>
                  <th scope="col" class="right">
                    Memory
                  </th>
                  <th scope="col">
                    <span class="hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {maps.data.maps.map((it) => (
                  <tr key={it.name} class={it.name === map ? "current" : ""}>
                    <th scope="row">
                      <a href={`#/maps/${encodeURIComponent(it.name)}`}>
                        <Name text={it.name} most={60} />
                      </a>
                    </th>
                    <td>
                      <Name text={it.keys} most={60} />
                    </td>
                    <td>
                      <Name text={it.values} most={60} />
                    </td>
                    <td class="right">{it.entries}</td>
                    <td class="right">{bytes(it.bytes)}</td>
                    <td class="actions">
                      <button type="button" class="small danger-text" onClick={() => setAction(drop(it.name, it.entries))}>
                        Drop
                      </button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
          <p class="hint">
            At most {bytes(maps.data.limit_bytes)} a host, on {plural(maps.data.hosts, "host")}
            {maps.data.unsettled_partitions > 0 && `; ${maps.data.unsettled_partitions} partitions lack backups: stop no host`}
          </p>
        </>
      )}
      {map !== null && <Entries key={map} map={map} turn={turn} onAction={setAction} />}
      {action !== null && <ActionDialog action={action} onClose={close} />}
    </>
  );
}

function Entries({ map, turn, onAction }: { map: string; turn: number; onAction: (action: Action) => void }) {
  const [prefix, setPrefix] = useState("");
  const [where, setWhere] = useState("");
  const [query, setQuery] = useState<Query>({ limit: PAGE });
  const limit = Number(query["limit"]);
  const entries = useResource<MapEntriesView>(`/maps/${segment(map)}/entries`, query);
  useEffect(() => {
    if (turn > 0) entries.reload();
  }, [turn]);
  const search = (event: Event) => {
    event.preventDefault();
    setQuery({ prefix, where, limit: PAGE });
    entries.reload();
  };
  return (
    <section>
      <h2>
        <Name text={map} />
      </h2>
      <form class="query" onSubmit={search}>
        <label>
          Key starts with
          <input value={prefix} onInput={(event) => setPrefix(event.currentTarget.value)} />
        </label>
        <label>
          Value where
          <input placeholder="FIELD=VALUE" value={where} onInput={(event) => setWhere(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary">
          Query
        </button>
        <button type="button" onClick={() => onAction(put(map, "", undefined))}>
          Add entry
        </button>
      </form>
      {entries.error !== null && <ErrorBox error={entries.error} />}
      {entries.data === null && entries.error === null && <Loading what="the entries" />}
      {entries.data?.entries.length === 0 && <Empty>No entry matches.</Empty>}
      {entries.data !== null && entries.data.entries.length > 0 && (
        <Scroll>
          <table>
            <thead>
              <tr>
                <th scope="col">Key</th>
                <th scope="col">Value</th>
                <th scope="col">
                  <span class="hidden">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {entries.data.entries.map((entry) => (
                <tr key={keyText(entry.key)}>
                  <th scope="row" class="code">
                    <Name text={keyText(entry.key)} most={200} />
                  </th>
                  <td class="code wrap">
                    <Name text={JSON.stringify(entry.value)} most={2_000} />
                  </td>
                  <td class="actions">
                    <button type="button" class="small" onClick={() => onAction(put(map, keyText(entry.key), entry.value))}>
                      Edit
                    </button>
                    <button type="button" class="small danger-text" onClick={() => onAction(remove(map, keyText(entry.key)))}>
                      Remove
                    </button>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {entries.data?.more === true && limit < MOST && (
        <button type="button" onClick={() => setQuery({ ...query, limit: Math.min(limit * 4, MOST) })}>
          Show more
        </button>
      )}
    </section>
  );
}

/** Returns a key as the interface reads it: plain if it is a text, else JSON. */
function keyText(key: unknown): string {
  return typeof key === "string" ? key : JSON.stringify(key);
}

function put(map: string, key: string, value: unknown): Action {
  const given = { key, value: value === undefined ? "" : JSON.stringify(value, null, 2) };
  const isNew = value === undefined;
  return {
    title: isNew ? "Add an entry" : `Change ${shortened(key, 60)}`,
    text: <p>The value is JSON, of the type of the map's values.</p>,
    fields: (
      <>
        <label class="field">
          Key
          <input defaultValue={key} readOnly={!isNew} onInput={(event) => (given.key = event.currentTarget.value)} />
        </label>
        <label class="field">
          Value
          <textarea rows={6} defaultValue={given.value} onInput={(event) => (given.value = event.currentTarget.value)} />
        </label>
      </>
    ),
    confirm: "Save",
    run: async () => {
      let json: unknown;
      try {
        json = JSON.parse(given.value);
      } catch (error) {
        throw new RequestError("", `the value is not JSON: ${String(error)}`, 'a text stands in quotation marks: "text"', 400);
      }
      await command("PUT", `/maps/${segment(map)}/entry`, { value: json }, { key: given.key });
    },
  };
}

function remove(map: string, key: string): Action {
  return {
    title: `Remove ${shortened(key, 60)}?`,
    text: <p>Jobs that read the map see the change.</p>,
    confirm: "Remove",
    isDangerous: true,
    run: async () => {
      await command("DELETE", `/maps/${segment(map)}/entry`, undefined, { key });
    },
  };
}

function drop(map: string, entries: number): Action {
  return {
    title: `Drop ${shortened(map, 60)}?`,
    text: <p>The map is removed with its {plural(entries, "entry").replace("entrys", "entries")}.</p>,
    confirm: "Drop",
    isDangerous: true,
    run: () => command("DELETE", `/maps/${segment(map)}`),
  };
}
