// The frame of the page: navigation, theme, token, and the view of the route.

import { useEffect, useState } from "preact/hooks";
import { setToken, token } from "./api/client";
import type { ClusterInfo } from "./api/types";
import { TokenDialog } from "./components/dialog";
import { Name } from "./components/basics";
import { ClusterView } from "./cluster/cluster_view";
import { HistoryView } from "./cluster/history_view";
import { JobsView } from "./cluster/jobs_view";
import { MapsView } from "./cluster/maps_view";
import { isEmbedded } from "./job/actions";
import { JobView } from "./job/job_view";
import { useResource, useUnauthorized } from "./live";
import { type Route, useRoute } from "./route";

type Theme = "auto" | "light" | "dark";
const THEMES: Theme[] = ["auto", "light", "dark"];
const THEME_KEY = "ardea.theme";

export function App() {
  const route = useRoute();
  const refused = useUnauthorized();
  const [session, setSession] = useState(0);
  const useNewToken = (secret: string) => {
    setToken(secret);
    refused.clear();
    // All views load again, with the token.
    setSession((before) => before + 1);
  };
  return (
    <>
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to the content
      </a>
      <Frame key={session} route={route} />
      {refused.isRefused && <TokenDialog onToken={useNewToken} onClose={refused.clear} />}
    </>
  );
}

function Frame({ route }: { route: Route }) {
  const info = useResource<ClusterInfo>("/cluster").data;
  // A job in its own process has no cluster.
  const isCluster = info === null || !isEmbedded(info);
  return (
    <>
      <Header route={route} info={info} isCluster={isCluster} />
      <main id="main" tabIndex={-1}>
        <View route={route} isCluster={isCluster} />
      </main>
    </>
  );
}

function skipToMain(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function View({ route, isCluster }: { route: Route; isCluster: boolean }) {
  useEffect(() => {
    const name = "job" in route ? route.job : route.view;
    document.title = `${name} – Ardea`;
  }, [route]);
  switch (route.view) {
    case "jobs":
      return <JobsView isCluster={isCluster} />;
    case "job":
      return <JobView key={route.job} job={route.job} tab={route.tab} step={route.step} />;
    case "history":
      return <HistoryView key={route.job} job={route.job} />;
    case "cluster":
      return <ClusterView />;
    case "maps":
      return <MapsView map={route.map} />;
  }
}

function Header({ route, info, isCluster }: { route: Route; info: ClusterInfo | null; isCluster: boolean }) {
  const isJobs = route.view === "jobs" || route.view === "job" || route.view === "history";
  return (
    <header class="top">
      <a class="brand" href="#/jobs">
        <img src="icon.svg" alt="" width="24" height="24" /> Ardea
      </a>
      <nav aria-label="views">
        <a href="#/jobs" aria-current={isJobs ? "page" : undefined}>
          Jobs
        </a>
        {isCluster && (
          <>
            <a href="#/cluster" aria-current={route.view === "cluster" ? "page" : undefined}>
              Cluster
            </a>
            <a href="#/maps" aria-current={route.view === "maps" ? "page" : undefined}>
              Maps
            </a>
          </>
        )}
      </nav>
      <span class="cluster-name">
        {info !== null && (
          <>
            <Name text={info.name} most={40} /> <small>{info.version}</small>
          </>
        )}
      </span>
      {token() !== null && (
        <button
          type="button"
          class="quiet"
          onClick={() => {
            setToken(null);
            location.reload();
          }}
        >
          Forget token
        </button>
      )}
      <ThemeButton />
    </header>
  );
}

function ThemeButton() {
  const [theme, setTheme] = useState<Theme>(() => savedTheme());
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
    localStorage.setItem(THEME_KEY, theme);
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]!;
  return (
    <button type="button" class="quiet" aria-label={`theme: ${theme}; change to ${next}`} onClick={() => setTheme(next)}>
      {theme === "auto" ? "◐ auto" : theme === "light" ? "○ light" : "● dark"}
    </button>
  );
}

function savedTheme(): Theme {
  const saved = localStorage.getItem(THEME_KEY);
  return THEMES.find((theme) => theme === saved) ?? "auto";
}
