//! Sends the metrics of a job to a StatsD server: `cargo run --example statsd -- 127.0.0.1:8125`.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use ardea::core::Clock;
use ardea::prelude::*;
use ardea_examples::statsd::Statsd;
use ardea_metrics::{
    Batch, InstanceCounters, Labels, MetricsManager, MetricsSinks, ProcessReading,
};

fn main() -> Result<()> {
    let server = env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:8125".to_string());
    let sinks = MetricsSinks::builtin().with("statsd", |setup| Ok(Box::new(Statsd::new(setup)?)));
    let process = Labels::of([("job", "squares")]);
    let manager = MetricsManager::start(&format!("statsd:{server}"), &process, &sinks)?;

    let p = Pipeline::new("squares");
    let numbers = p.read_from(generate::at_rate(1_000, |n| n));
    numbers
        .map(|n: u64| n.wrapping_mul(n))
        .named("square")
        .write_to(null::sink());
    let node = Node::start(NodeConfig::default())?;
    let job = p.submit(&node, JobConfig::default())?;

    let (clock, started) = (Clock::system(), Clock::system().wall());
    for _ in 0..10 {
        std::thread::sleep(Duration::from_secs(1));
        let mut batch = Batch::new(process.clone(), started, clock.wall());
        for report in job.metrics() {
            InstanceCounters::new(&*report.vertex, report.instance, report.metrics)
                .write(&mut batch);
        }
        ProcessReading::read()?.write(&mut batch);
        manager.send(&Arc::new(batch));
    }
    job.cancel();
    for sink in manager.report() {
        println!("{}: {} batches to {}", sink.name, sink.taken, sink.place);
    }
    manager.close(Duration::from_secs(1));
    Ok(())
}
