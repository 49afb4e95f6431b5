//! Vertices of a job in processes of their own.

use ardea_coordination::control::{WORKER_START_VARIABLE, WorkerStart};
use ardea_core::{Error, ErrorCode, Isolation, Result};
use ardea_engine::{Job, Parallelisms, Program};
use ardea_instance::{InstanceCommand, VertexProcesses, check_isolated, own_command, serve_vertex};

use crate::worker::WorkerDependencies;

/// Returns the processes of a worker's isolated vertices.
///
/// # Errors
/// If the path of this program is not known.
pub(crate) fn processes(
    start: &WorkerStart,
    dependencies: &WorkerDependencies,
    instance_restarts: u32,
) -> Result<VertexProcesses> {
    let command = match dependencies.command.as_deref() {
        Some([program, arguments @ ..]) => InstanceCommand::new(program).args(arguments),
        Some([]) | None => own_command()?,
    };
    let start = serde_json::to_string(start).map_err(|error| {
        let what = "the start parameters of a worker are no document";
        Error::new(ErrorCode::Internal, what).because(error)
    })?;
    let command = command.env(WORKER_START_VARIABLE, start);
    Ok(VertexProcesses::new(
        command.restarts_in_a_row(instance_restarts),
    ))
}

/// Returns a program whose isolated vertices run in processes.
///
/// # Errors
/// As [`check_isolation`].
pub(crate) fn host(
    job: &dyn Job,
    program: Program,
    processes: &VertexProcesses,
) -> Result<Program> {
    if job.starts_processes() {
        return Ok(program);
    }
    check_isolation(job, &program)?;
    Ok(Program {
        dag: processes.host(&program.dag)?,
        ..program
    })
}

/// Checks that the isolated vertices of a job can run in processes of their own.
///
/// # Errors
/// [`ErrorCode::InvalidJob`] if an edge of such a vertex has no codec, or if the job has side
/// channels.
pub fn check_isolation(job: &dyn Job, program: &Program) -> Result<()> {
    if job.starts_processes() {
        return Ok(());
    }
    let mut vertices = program.dag.vertices().iter();
    let isolated = vertices.find(|it| it.wanted_isolation() == Isolation::Process);
    if let Some(isolated) = isolated.filter(|_| !program.side_channels.is_empty()) {
        let what = format!(
            "the vertex {:?} can't run in a process of its own, as its job has side channels",
            isolated.name()
        );
        return Err(Error::new(ErrorCode::InvalidJob, what).hint("isolate the vertex by a thread"));
    }
    check_isolated(&program.dag)
}

/// Serves an instance of a vertex to the worker that started this process for it.
///
/// # Errors
/// Errors of the job's program and of the instance.
pub(crate) fn serve(job: &dyn Job, vertex: &str) -> Result<()> {
    match job.starts_processes() {
        true => job.serve_instance(vertex),
        false => serve_vertex(&job.program(&Parallelisms::new())?.dag, vertex),
    }
}
