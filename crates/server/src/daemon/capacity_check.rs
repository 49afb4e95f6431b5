//! A check that each instance of a job for the scheduler `local` fits onto this machine.

use ardea_coordination::packing::{JobDemand, Resource, Resources};
use ardea_core::{Error, ErrorCode, Result};
use ardea_scheduler::LOCAL;

/// Rejects a job for the scheduler `local` if an instance requests more resources than the machine
/// has.
///
/// # Errors
///
/// [`ErrorCode::ResourcesImpossible`] with the requested and the existing amount.
pub(crate) fn check_room(demand: &JobDemand, scheduler: &str, machine: Resources) -> Result<()> {
    if scheduler != LOCAL {
        return Ok(());
    }
    for vertex in &demand.vertices {
        for resource in Resource::ALL {
            let (asked, there) = (vertex.resources.amount(resource), machine.amount(resource));
            if asked > there {
                let what = format!(
                    "each instance of {:?} asks for {} {resource}, and the machine has {}",
                    vertex.name.as_str(),
                    resource.display(asked),
                    resource.display(there)
                );
                return Err(Error::new(ErrorCode::ResourcesImpossible, what).hint(
                    "ask for less, or submit it to a cluster of larger machines, with cluster.scheduler=hosts",
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_coordination::packing::{MilliCores, VertexDemand};

    #[test]
    fn an_instance_that_is_larger_than_the_machine_is_refused_with_both_sizes() {
        let machine = Resources {
            cpu: MilliCores(2_000),
            memory_bytes: 24 << 30,
            disk_bytes: u64::MAX,
        };
        let asks = |cpu, memory_bytes, scheduler| {
            let each = Resources {
                cpu: MilliCores(cpu),
                memory_bytes,
                disk_bytes: 1 << 50,
            };
            let demand = JobDemand::new("job").vertex(VertexDemand::new("counts", 3, each));
            check_room(&demand, scheduler, machine)
        };
        // All instances together may request more than the machine has.
        assert!(asks(2_000, 24 << 30, "local").is_ok());
        assert!(
            asks(99_000, 0, "hosts").is_ok(),
            "other machines may be larger"
        );
        for (cpu, memory, told) in [
            (
                99_000,
                0,
                "each instance of \"counts\" asks for 99 cpu, and the machine has 2",
            ),
            (
                0,
                9_999 << 30,
                "asks for 9999GiB memory, and the machine has 24GiB",
            ),
        ] {
            let error = asks(cpu, memory, "local").unwrap_err();
            assert_eq!(error.code(), ErrorCode::ResourcesImpossible);
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
