//! Display of a packing plan as a readable table.

use std::fmt;

use crate::packing::{InstanceId, PackingPlan, Resource};

impl fmt::Display for PackingPlan {
    /// Writes one line per container, with the instances of each vertex as ranges, such as `counts
    /// 0-3,7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} in {}",
            self.job(),
            counted(self.instance_count(), "instance"),
            counted(self.containers().len(), "container"),
        )?;
        let mut table = vec![["container", "cpu", "memory", "disk", "instances"].map(String::from)];
        table.extend(self.containers().iter().map(|container| {
            let [cpu, memory, disk] =
                Resource::ALL.map(|of| of.display(container.required.amount(of)));
            let instances = grouped(&container.instances);
            [container.id.to_string(), cpu, memory, disk, instances]
        }));
        let widths: [usize; 4] = std::array::from_fn(|column| {
            let cells = table.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        });
        for row in &table {
            for (cell, width) in row.iter().zip(widths) {
                write!(f, "{cell:>width$}  ")?;
            }
            writeln!(f, "{}", row[4])?;
        }
        Ok(())
    }
}

fn counted(count: usize, of: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {of}{plural}")
}

/// Formats sorted instances as ranges per vertex, such as `counts 0-3,7; words 1`.
fn grouped(instances: &[InstanceId]) -> String {
    let vertices = instances.chunk_by(|a, b| a.vertex == b.vertex);
    let groups = vertices.map(|group| {
        let runs = group.chunk_by(|a, b| a.index + 1 == b.index);
        let runs: Vec<String> = runs
            .map(|run| match run {
                [one] => one.index.to_string(),
                [first, .., last] => format!("{}-{}", first.index, last.index),
                [] => String::new(),
            })
            .collect();
        format!("{} {}", group[0].vertex, runs.join(","))
    });
    groups.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use crate::packing::{
        ContainerId, InstanceId, JobDemand, MilliCores, PackingConfig, PackingPlan, Placement,
        Resources, VertexDemand,
    };

    #[test]
    fn a_plan_is_a_table_with_instances_drawn_together() {
        let each = Resources {
            cpu: MilliCores(500),
            memory_bytes: 64 << 20,
            disk_bytes: 0,
        };
        let demand = JobDemand::new("word-count")
            .vertex(VertexDemand::new("words", 1, each))
            .vertex(VertexDemand::new("counts", 5, each));
        let counts = |index| InstanceId::new("counts", index);
        let placement = Placement::from([
            (
                ContainerId(1),
                vec![InstanceId::new("words", 0), counts(4), counts(0), counts(1)],
            ),
            (ContainerId(2), vec![counts(3), counts(2)]),
        ]);
        let plan = PackingPlan::of(&demand, &PackingConfig::default(), placement).unwrap();
        assert_eq!(
            plan.to_string(),
            "word-count: 6 instances in 2 containers\n\
             container  cpu  memory  disk  instances\n\
             \u{20}       1    2  256MiB    0B  counts 0-1,4; words 0\n\
             \u{20}       2    1  128MiB    0B  counts 2-3\n"
        );
    }
}
