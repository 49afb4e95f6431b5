//! Runs a program in two containers on the odd cores of this machine:
//! `cargo run --example odd_cores -- /bin/sleep 3`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use ardea_coordination::control::{
    ContainerRequest, JobDefinition, JobRef, MasterEpoch, Order, ProgramRef, SchedulerCall,
};
use ardea_coordination::packing::{ContainerId, Resources};
use ardea_examples::odd_cores::OddCores;
use ardea_scheduler::artifacts::{Cache, CacheConfig, Contents, PackageStores, StoreOptions};
use ardea_scheduler::{
    CachedPrograms, ContainerEvent, LaunchPlan, Local, Runner, RunnerConfig, Schedulers,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments
        .next()
        .ok_or("which program? Say `-- /bin/sleep 3`")?;
    let folder = std::env::temp_dir().join(format!("odd-cores-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let ended = run(&folder, &program, arguments.collect()).await;
    std::fs::remove_dir_all(&folder)?;
    ended
}

async fn run(folder: &Path, program: &str, arguments: Vec<String>) -> Result<(), Box<dyn Error>> {
    let packages = format!("file://{}/packages", folder.display());
    let packed = Contents::new().file("program", program)?.pack(folder)?;
    let (stores, options) = (PackageStores::builtin(), StoreOptions::default());
    stores.open(&packages, &options)?.put(&packed).await?;
    let cache = Cache::open(folder.join("cache"), CacheConfig::default())?;
    let programs = CachedPrograms::new(cache, stores, options);
    let runner = Runner::open(RunnerConfig::new(folder), Arc::new(programs)).await?;
    let schedulers = Schedulers::none().with("odd-cores", OddCores::of(Local::new(runner)));

    let definition = JobDefinition {
        job: JobRef {
            cluster: "example".to_string(),
            name: "odd cores".to_string(),
            submission: 1,
        },
        program: ProgramRef {
            package: packed.digest().to_string(),
            executable: "program".to_string(),
            arguments,
        },
        packing: "round-robin".to_string(),
        scheduler: "odd-cores".to_string(),
        settings: BTreeMap::new(),
        version: env!("CARGO_PKG_VERSION").to_string(),
    };
    let launch = LaunchPlan {
        definition,
        packages,
        state_url: format!("file://{}/state", folder.display()),
        token_file: None,
        certificates: None,
        environment: BTreeMap::new(),
    };
    let (scheduler, mut events) = schedulers.start(launch).await?;
    let order = |number| Order {
        epoch: MasterEpoch(1),
        number,
    };
    let request = |id| ContainerRequest {
        id: ContainerId(id),
        required: Resources::ZERO,
        attributes: BTreeMap::new(),
    };
    let call = SchedulerCall::EnsureContainers(vec![request(1), request(2)]);
    println!("{:?}", scheduler.call(order(1), call).await);
    let mut running = 2;
    while running > 0 {
        match events
            .next()
            .await
            .ok_or("the scheduler reports no more events")?
        {
            ContainerEvent::Started(container) => {
                println!("{} runs as {}", container.worker, container.process);
            }
            ContainerEvent::Exited { worker, how, .. } => {
                println!("{worker} {how}");
                running -= 1;
            }
            ContainerEvent::Notice { text, .. } => println!("{text}"),
        }
    }
    println!("{:?}", scheduler.call(order(2), SchedulerCall::Kill).await);
    Ok(())
}
