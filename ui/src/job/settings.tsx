// The program and the settings of a job.

import type { JobDescription } from "../api/types";
import { Name, Scroll } from "../components/basics";

export function Settings({ job }: { job: JobDescription }) {
  const settings = Object.entries(job.settings).sort(([one], [other]) => one.localeCompare(other));
  const rows: [string, string][] = [
    ["Program", [job.program.executable, ...job.program.arguments].join(" ")],
    ["Package", job.program.package],
    ["Version of Ardea", job.version],
    ["Submission", job.submission],
    ["Packing policy", job.packing],
    ["Scheduler", job.scheduler],
  ];
  if (job.master !== null) rows.push(["Leader", `${job.master.host}, ${job.master.address}, leader epoch ${job.master.epoch}`]);
  return (
    <section>
      <Table caption="Program" rows={rows} />
      <h2>Settings</h2>
      {settings.length === 0 ? (
        <p class="hint">All settings have their defaults.</p>
      ) : (
        <Table caption="Settings that differ from their defaults" rows={settings} />
      )}
    </section>
  );
}

function Table({ caption, rows }: { caption: string; rows: [string, string][] }) {
  return (
    <Scroll>
      <table class="pairs">
        <caption class="hidden">{caption}</caption>
        <tbody>
          {rows.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="code wrap">
                <Name text={value} most={1_000} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
