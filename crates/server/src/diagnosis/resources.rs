//! Causes in resources: processors, memory, and machines that stand still.

use ardea_config::readable_bytes;
use ardea_rest::{CauseKind, CauseView, FigureUnit};

use super::cause::{Cause, listed};
use super::figures::{ContainerFigures, Figures};

/// Share of time that a control group holds a process back, from which that is a cause.
const THROTTLED_FROM: f64 = 0.05;

/// Share of time that threads of a machine wait for a processor, from which it is saturated.
const CPU_PRESSURE_FROM: f64 = 0.3;

/// Share of its cores from which a container uses all of them.
const CORES_FROM: f64 = 0.95;

/// Share of its memory from which a container is near its limit.
const MEMORY_FROM: f64 = 0.9;

/// Share of time that threads of a machine wait for memory, from which that is a cause.
const MEMORY_PRESSURE_FROM: f64 = 0.1;

/// Seconds of standstill within a minute from which that is a cause.
const PAUSED_FROM_S: f64 = 0.5;

/// Returns the causes in resources.
pub(super) fn causes(figures: &Figures) -> Vec<CauseView> {
    let mut causes = Vec::new();
    for container in &figures.containers {
        causes.extend(throttled(container));
        causes.extend(near_limit(container));
        causes.extend(paused(container));
    }
    causes.extend(saturated(figures));
    causes.extend(memory_pressure(figures));
    causes.extend(spilled(figures));
    causes
}

fn name(container: &ContainerFigures) -> String {
    match &container.host {
        Some(host) => format!("container {} on {host}", container.container),
        None => format!("container {}", container.container),
    }
}

/// Reports a container that its control group or its number of cores limits.
fn throttled(container: &ContainerFigures) -> Option<CauseView> {
    let used = container.cpu_cores.unwrap_or(0.0);
    let share = container.throttled.unwrap_or(0.0);
    let limit = container.cpu_limit_cores;
    let is_full = limit.is_some_and(|limit| limit > 0.0 && used >= CORES_FROM * limit);
    if share < THROTTLED_FROM && !is_full {
        return None;
    }
    let name = name(container);
    let (severity, summary) = match share >= THROTTLED_FROM {
        true => (
            0.4 + 0.5 * share,
            format!("the control group holds back the processors of {name}"),
        ),
        false => (0.4, format!("{name} uses all cores that it asks for")),
    };
    let mut cause = Cause::new(CauseKind::Cpu, severity, summary)
        .of(name)
        .figure("cores in use", used, FigureUnit::Cores)
        .figure("share of time held back", share, FigureUnit::Ratio);
    if let Some(limit) = limit {
        cause = cause.figure("cores of the container", limit, FigureUnit::Cores);
    }
    Some(cause.advice("give its vertices more cpu (their resources), or spread the job over more containers: ardea rescale JOB --workers N"))
}

/// Returns the names of the machines for which `is_such` holds, and the greatest value.
fn machines(
    figures: &Figures,
    value: fn(&ContainerFigures) -> Option<f64>,
    from: f64,
) -> Option<(Vec<String>, f64)> {
    let containers = figures.containers.iter();
    let such = containers.filter(|it| value(it).is_some_and(|value| value >= from));
    let most = such.clone().filter_map(value).reduce(f64::max)?;
    let machines = such.map(|it| it.host.clone().unwrap_or_else(|| name(it)));
    let mut machines: Vec<String> = machines.collect();
    machines.sort();
    machines.dedup();
    Some((machines, most))
}

/// Reports machines whose processors are saturated.
fn saturated(figures: &Figures) -> Option<CauseView> {
    let (machines, most) = machines(figures, |it| it.cpu_pressure, CPU_PRESSURE_FROM)?;
    let used: f64 = figures
        .containers
        .iter()
        .filter_map(|it| it.cpu_cores)
        .sum();
    let machines = listed(&machines);
    let summary = format!("the processors of {machines} are saturated: threads wait for a core");
    let cause = Cause::new(CauseKind::Cpu, 0.2 + 0.5 * most, summary)
        .of(machines)
        .figure(
            "share of time in which a thread waits for a core",
            most,
            FigureUnit::Ratio,
        )
        .figure("cores that the job uses", used, FigureUnit::Cores);
    Some(cause.advice("move other processes away, add hosts and spread the job over them, or make the busiest step cheaper"))
}

/// Reports a container near its memory limit.
fn near_limit(container: &ContainerFigures) -> Option<CauseView> {
    let (used, limit) = container.memory_bytes.zip(container.memory_limit_bytes)?;
    let share = used as f64 / limit.max(1) as f64;
    if limit == 0 || share < MEMORY_FROM {
        return None;
    }
    let name = name(container);
    let summary = format!(
        "{name} has {} of {}: it may be ended, or state goes to disk",
        readable_bytes(used),
        readable_bytes(limit)
    );
    let cause = Cause::new(CauseKind::Memory, 0.4 + 0.4 * share.min(1.25), summary)
        .of(name)
        .figure("memory in use", used as f64, FigureUnit::Bytes)
        .figure("memory of the container", limit as f64, FigureUnit::Bytes);
    Some(cause.advice("give its vertices more memory (their resources), spread the job over more containers, or bound the state by a time to live"))
}

/// Reports machines whose threads wait for memory.
fn memory_pressure(figures: &Figures) -> Option<CauseView> {
    let (machines, most) = machines(figures, |it| it.memory_pressure, MEMORY_PRESSURE_FROM)?;
    let machines = listed(&machines);
    let summary = format!("{machines} has too little memory: threads wait for pages");
    let cause = Cause::new(CauseKind::Memory, 0.4 + 0.5 * most, summary)
        .of(machines)
        .figure(
            "share of time in which a thread waits for memory",
            most,
            FigureUnit::Ratio,
        );
    Some(cause.advice("move other processes away, or add hosts and memory"))
}

/// Reports a busy vertex with state on disk.
fn spilled(figures: &Figures) -> Option<CauseView> {
    let busy = figures.vertices.iter();
    let busy = busy.filter(|it| it.state_disk_bytes > 0 && it.most(|it| it.busy) > 0.7);
    let vertex = busy.max_by_key(|it| it.state_disk_bytes)?;
    let name = &vertex.name;
    let summary = format!("{name} is busy, and a part of its state is on disk");
    let cause = Cause::new(CauseKind::Memory, 0.45, summary)
        .of(name.as_str())
        .figure(
            "state on disk",
            vertex.state_disk_bytes as f64,
            FigureUnit::Bytes,
        )
        .figure(
            format!("busy of {name}"),
            vertex.most(|it| it.busy),
            FigureUnit::Ratio,
        );
    Some(cause.advice("raise the memory for state, give the step more instances, or bound its state by a time to live"))
}

/// Reports a process that stood still.
fn paused(container: &ContainerFigures) -> Option<CauseView> {
    if container.paused_s < PAUSED_FROM_S {
        return None;
    }
    let name = name(container);
    let summary = format!("{name} stood still: its machine was paused, or gave it no processor");
    let severity = 0.35 + container.paused_s / 60.0;
    let cause = Cause::new(CauseKind::MachinePause, severity, summary)
        .of(name)
        .figure(
            "standstill within a minute",
            container.paused_s,
            FigureUnit::Seconds,
        );
    Some(cause.advice("look for migrations and suspensions of the virtual machine, for swapping, and for other processes that take all cores"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::example::figures;

    fn of(change: impl FnOnce(&mut ContainerFigures)) -> Vec<CauseView> {
        let mut figures = figures();
        change(&mut figures.containers[0]);
        causes(&figures)
    }

    #[test]
    fn a_container_that_is_held_back_or_uses_all_its_cores_lacks_cpu() {
        let throttled = of(|it| it.throttled = Some(0.4));
        assert_eq!(throttled[0].kind, CauseKind::Cpu);
        assert_eq!(throttled[0].subject.as_deref(), Some("container 1 on quay"));
        let full = of(|it| (it.cpu_cores, it.cpu_limit_cores) = (Some(0.99), Some(1.0)));
        assert!(full[0].summary.contains("uses all cores"), "{full:?}");
        assert!(throttled[0].severity > full[0].severity);
        assert_eq!(of(|it| it.cpu_limit_cores = Some(1.0)), []);
    }

    #[test]
    fn a_machine_whose_threads_wait_for_cores_is_saturated() {
        let causes = of(|it| it.cpu_pressure = Some(0.8));
        assert_eq!((causes[0].kind, causes.len()), (CauseKind::Cpu, 1));
        assert_eq!(causes[0].subject.as_deref(), Some("quay"));
        assert_eq!(of(|it| it.cpu_pressure = Some(0.1)), []);
    }

    #[test]
    fn a_container_near_its_memory_limit_and_a_machine_without_memory_are_named() {
        let near = of(|it| (it.memory_bytes, it.memory_limit_bytes) = (Some(950), Some(1_000)));
        assert_eq!(near[0].kind, CauseKind::Memory);
        let pressed = of(|it| it.memory_pressure = Some(0.3));
        assert_eq!(pressed[0].kind, CauseKind::Memory);
        assert_eq!(of(|it| it.memory_limit_bytes = Some(1 << 30)), []);
    }

    #[test]
    fn a_busy_step_with_state_on_disk_is_named() {
        let mut figures = figures();
        figures.vertices[1].state_disk_bytes = 1 << 30;
        assert_eq!(causes(&figures), []);
        figures.vertices[1]
            .instances
            .insert(0, crate::diagnosis::example::instance(0.9));
        let causes = causes(&figures);
        assert_eq!(causes[0].subject.as_deref(), Some("counts"));
    }

    #[test]
    fn a_process_that_stood_still_is_named() {
        let causes = of(|it| it.paused_s = 6.0);
        assert_eq!(causes[0].kind, CauseKind::MachinePause);
        assert_eq!(of(|it| it.paused_s = 0.1), []);
    }
}
