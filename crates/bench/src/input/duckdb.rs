//! The same queries in DuckDB, over the same file.

use std::path::Path;

use super::{InputFormat, InputParams, InputQuery};
use crate::python;

/// The resources that DuckDB used for a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryTimes {
    /// User and system time of all its threads.
    pub(super) cpu_s: f64,
    pub(super) wall_s: f64,
    /// The peak resident memory of its process, in mebibytes.
    pub(super) rss_mb: f64,
}

/// The program around the query: only the query is timed, not the start of the interpreter.
const PROGRAM: &str = r"
import duckdb, json, resource, sys, time
threads, query = int(sys.argv[1]), sys.argv[2]
connection = duckdb.connect(config={'threads': threads})
connection.execute('SELECT 1').fetchall()
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
wall, before = time.monotonic(), cpu()
connection.execute(query)
rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({'cpu_s': cpu() - before, 'wall_s': time.monotonic() - wall, 'rss_mb': rss_mb}))
";

/// Runs the query; `None` if there is no Python with DuckDB, or DuckDB fails.
pub(super) fn run(params: &InputParams, input: &Path, output: &Path) -> Option<QueryTimes> {
    let arguments = [params.threads.to_string(), query(params, input, output)];
    let times = python::run(PROGRAM, arguments)?;
    Some(QueryTimes {
        cpu_s: times.get("cpu_s")?.as_f64()?,
        wall_s: times.get("wall_s")?.as_f64()?,
        rss_mb: times.get("rss_mb")?.as_f64()?,
    })
}

fn query(params: &InputParams, input: &Path, output: &Path) -> String {
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "''"));
    let (input, output) = (quoted(input), quoted(output));
    let bids = match params.format {
        InputFormat::Json => format!(
            "(SELECT auction, bidder, price, date_time FROM read_json({input}, \
             format='newline_delimited', columns={{kind: 'VARCHAR', auction: 'UBIGINT', \
             bidder: 'UBIGINT', price: 'UBIGINT', date_time: 'BIGINT'}}) WHERE kind = 'bid')"
        ),
        InputFormat::Csv => format!("read_csv({input}, header=true)"),
        InputFormat::Parquet => format!("read_parquet({input})"),
    };
    match params.query {
        InputQuery::Q1 => format!(
            "COPY (SELECT auction, bidder, price * 0.908::DOUBLE AS price, date_time FROM {bids}) \
             TO {output} (FORMAT json)"
        ),
        // Each bid counts in the slide of its time; a window is the sum of five slides.
        InputQuery::Q5 => format!(
            "COPY (WITH slides AS (SELECT date_time // 2000 AS slide, auction, count(*) AS bids \
             FROM {bids} GROUP BY ALL), windows AS (SELECT slide + ahead AS last, auction, \
             sum(bids) AS bids FROM slides, range(5) AS shifts(ahead) GROUP BY ALL) \
             SELECT last, auction, bids FROM windows \
             QUALIFY bids = max(bids) OVER (PARTITION BY last)) TO {output} (FORMAT json)"
        ),
        InputQuery::Words => format!(
            "COPY (SELECT word, count(*) FROM (SELECT unnest(string_split(line, ' ')) AS word \
             FROM read_csv({input}, columns={{line: 'VARCHAR'}}, header=false, delim='\\t', \
             quote='', escape='')) GROUP BY word) TO {output} (FORMAT csv)"
        ),
    }
}
