//! The text form of a job's plans.

use std::fmt;
use std::time::Duration;

use crate::{LogicalPlan, LogicalVertex, PhysicalPlan, Plans};

/// Writes each vertex with its outgoing edges, then the groups of vertices that share containers.
impl fmt::Display for LogicalPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vertex in &self.vertices {
            let LogicalVertex {
                name, parallelism, ..
            } = vertex;
            write!(f, "{name} ({parallelism}")?;
            if vertex.isolation != "tasklet" {
                write!(f, ", own {}", vertex.isolation)?;
            }
            writeln!(f, ")")?;
            for edge in self.edges.iter().filter(|edge| edge.from == *name) {
                let inputs = self.edges.iter().filter(|other| other.to == edge.to);
                write!(f, "  → {}", edge.to)?;
                if inputs.count() > 1 {
                    write!(f, " input {}", edge.input)?;
                }
                write!(f, " [{}", edge.routing)?;
                if let Some(micros) = edge.latency_us {
                    write!(f, ", latency {:?}", Duration::from_micros(micros))?;
                }
                writeln!(f, "]")?;
            }
        }
        for group in self.groups().iter().filter(|group| group.len() > 1) {
            writeln!(f, "stay together: {}", group.join(" + "))?;
        }
        Ok(())
    }
}

/// Writes each container with its instances; vertices of one group are on one line.
impl fmt::Display for PhysicalPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for container in &self.containers {
            write!(f, "container {} {}", container.id, container.state.as_str())?;
            if let Some(host) = container.host_name.as_ref().or(container.host.as_ref()) {
                write!(f, " on {host}")?;
            }
            if let Some(address) = &container.address {
                write!(f, " at {address}")?;
            }
            writeln!(f)?;
            for group in &container.groups {
                let numbers: Vec<String> = group.instances.iter().map(u32::to_string).collect();
                let vertices = group.vertices.join(" + ");
                writeln!(f, "  {vertices}  #{}", numbers.join(" #"))?;
            }
        }
        Ok(())
    }
}

/// Writes all three plans, each with a title.
impl fmt::Display for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "logical plan of {}\n{}",
            self.job,
            indented(&self.logical)
        )?;
        write!(f, "\nphysical plan\n{}", indented(&self.physical))?;
        match (&self.packing, self.version) {
            (Some(packing), Some(version)) => {
                write!(f, "\npacking plan {version}\n{}", indented(packing))
            }
            (Some(packing), None) => write!(f, "\npacking plan\n{}", indented(packing)),
            (None, _) => f.write_str("\nthere is no packing plan yet\n"),
        }
    }
}

fn indented(what: &impl fmt::Display) -> String {
    let text = what.to_string();
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::word_count;
    use ardea_coordination::packing::{PackingPolicy, RoundRobin};

    #[test]
    fn plans_are_told_from_the_graph_to_the_containers() {
        let request = word_count("c", "words", 1);
        let plan = RoundRobin.pack(&request.demand, &request.packing).unwrap();
        let text = Plans::of(&request.demand, Some((3, plan)), &[]).to_string();
        let expected = "\
logical plan of words
  lines (1)
    → words [round robin]
  words (2)
    → counts [keyed]
  counts (2)

physical plan
  container 1 planned
    lines  #0
    words  #1
    counts  #1
  container 2 planned
    words  #0
    counts  #0

packing plan 3
  words: 5 instances in 2 containers
";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn what_stays_together_is_told_in_the_graph_and_stands_on_one_line_of_its_container() {
        let mut request = word_count("c", "words", 1);
        let mut logical = LogicalPlan::of(&request.demand);
        for vertex in &mut logical.vertices[1..] {
            vertex.together = Some("words".into());
        }
        logical.write_into(&mut request.demand);
        let plan = RoundRobin.pack(&request.demand, &request.packing).unwrap();
        let text = Plans::of(&request.demand, Some((3, plan)), &[]).to_string();
        assert!(text.contains("stay together: words + counts\n"), "{text}");
        assert!(text.contains("    words + counts  #"), "{text}");
        assert!(!text.contains("lines +"), "{text}");
    }
}
