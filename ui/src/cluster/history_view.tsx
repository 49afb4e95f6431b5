// The record of jobs of a name that have ended.

import type { PastJobDescription } from "../api/types";
import { segment } from "../api/client";
import { Empty, ErrorBox, Figure, Loading, Name } from "../components/basics";
import { ms, time } from "../format";
import { Timeline } from "../job/timeline";
import { Logs } from "../job/logs";
import { useResource } from "../live";

export function HistoryView({ job }: { job: string }) {
  const past = useResource<PastJobDescription[]>(`/history/${segment(job)}`);
  return (
    <>
      <p class="crumbs">
        <a href="#/jobs">Jobs</a> / ended
      </p>
      <h1>
        <Name text={job} />
      </h1>
      {past.error !== null && <ErrorBox error={past.error} />}
      {past.data === null && past.error === null && <Loading what="the record" />}
      {past.data?.length === 0 && <Empty>There is no record of a job of this name.</Empty>}
      {past.data?.map((one, index) => (
        <section key={one.submission}>
          <h2>
            {one.ending.replace("_", " ")} at {time(one.ended_ms)}
          </h2>
          <dl class="figures">
            <Figure label="Submitted" value={time(one.submitted_ms)} />
            <Figure label="Ran for" value={ms(one.ended_ms - one.submitted_ms)} />
            <Figure label="Instances" value={String(one.instance_count)} />
            <Figure label="Containers" value={String(one.container_count)} />
          </dl>
          <Timeline notes={one.notes} problems={one.problems} />
          {index === 0 && <Logs job={job} containers={[]} submission={one.submission} isFollowed={false} />}
        </section>
      ))}
    </>
  );
}
