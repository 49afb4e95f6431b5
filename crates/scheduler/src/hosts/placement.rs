//! Placement of containers on hosts.
//!
//! The largest container is placed first. Each container is placed on the host that has the largest
//! free share afterwards, so that hosts fill evenly. The attributes of a container take precedence:
//!
//! | attribute | means |
//! |---|---|
//! | `host=NAME` | on the host of that name only |
//! | `rack=NAME` | only on hosts with that value of the attribute `rack`; likewise any attribute that a host has |
//! | `preferred-host=NAME` | on the host of that name if it has room, else on another |
//! | `spread=host` | where the fewest containers of the job are |
//! | `spread=rack` | in the rack with the fewest containers of the job; likewise any attribute of hosts |

use std::collections::BTreeMap;

use ardea_coordination::control::ContainerRequest;
use ardea_coordination::packing::{ContainerId, PREFERRED_HOST_ATTRIBUTE, Resource, Resources};
use ardea_core::{Error, ErrorCode};

/// A host considered for placement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// The registered name of the host.
    pub(super) id: String,
    /// The free resources of the host.
    pub(super) free: Resources,
    /// The total resources of the host.
    pub(super) total: Resources,
    /// The attributes of the host.
    pub(super) attributes: BTreeMap<String, String>,
    /// The number of the job's containers on the host.
    pub(super) containers: usize,
    /// True if the host is drained and gets no containers.
    pub(super) is_drained: bool,
}

/// A container that could not be placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UnplaceableContainer {
    /// The container.
    pub(super) request: ContainerRequest,
    /// The resource or attribute that no host has.
    pub(super) why: String,
}

impl From<UnplaceableContainer> for Error {
    fn from(UnplaceableContainer { request, why }: UnplaceableContainer) -> Error {
        let what = format!(
            "no host has room for container {}, which needs {}",
            request.id, request.required
        );
        let error = Error::new(ErrorCode::NoRoom, what).because(why);
        error.hint("add a host, stop other jobs, or ask for less")
    }
}

/// Places the containers on hosts. Returns the host of each placed container, and the containers
/// that could not be placed, with reasons. `O(containers · hosts)`.
pub(super) fn place(
    mut missing: Vec<ContainerRequest>,
    mut hosts: Vec<Candidate>,
) -> (BTreeMap<ContainerId, String>, Vec<UnplaceableContainer>) {
    missing.sort_by_key(|request| {
        let size = request.required;
        let order = (size.memory_bytes, size.cpu, size.disk_bytes);
        (std::cmp::Reverse(order), request.id)
    });
    let (mut placed, mut refused) = (BTreeMap::new(), Vec::new());
    for request in missing {
        match best(&request, &hosts) {
            Some(at) => {
                let host = &mut hosts[at];
                host.free = host
                    .free
                    .checked_sub(request.required)
                    .unwrap_or(Resources::ZERO);
                host.containers += 1;
                placed.insert(request.id, host.id.clone());
            }
            None => refused.push(UnplaceableContainer {
                why: missing_resources(&request, &hosts),
                request,
            }),
        }
    }
    (placed, refused)
}

fn best(request: &ContainerRequest, hosts: &[Candidate]) -> Option<usize> {
    let fits = |host: &Candidate| !host.is_drained && request.required.fits_in(&host.free);
    let fitting = hosts
        .iter()
        .enumerate()
        .filter(|(_, host)| fits(host) && permits(request, host, hosts));
    let spread = request.attributes.get("spread");
    let preferred = request.attributes.get(PREFERRED_HOST_ATTRIBUTE);
    fitting
        .min_by_key(|(_, host)| {
            let is_other = preferred.is_some_and(|name| *name != host.id);
            let crowd = spread.map_or(0, |spread| crowd(spread, host, hosts));
            let left = std::cmp::Reverse(left_after(request, host));
            (is_other, crowd, left, host.containers, host.id.clone())
        })
        .map(|(at, _)| at)
}

/// Returns true if the container's attributes permit this host.
fn permits(request: &ContainerRequest, host: &Candidate, hosts: &[Candidate]) -> bool {
    request
        .attributes
        .iter()
        .all(|(name, value)| match name.as_str() {
            "spread" | PREFERRED_HOST_ATTRIBUTE => true,
            "host" => host.id == *value || host.attributes.get("host") == Some(value),
            // An attribute that no host has is no constraint.
            _ if hosts.iter().all(|host| !host.attributes.contains_key(name)) => true,
            _ => host.attributes.get(name) == Some(value),
        })
}

/// Returns the number of the job's containers on this host (`spread` is `host`), or on all hosts
/// with the same value of the attribute `spread`.
fn crowd(spread: &str, host: &Candidate, hosts: &[Candidate]) -> usize {
    let of_host = |host: &Candidate| host.attributes.get(spread).cloned();
    match (spread, of_host(host)) {
        ("host", _) | (_, None) => host.containers,
        (_, group) => hosts
            .iter()
            .filter(|other| !other.is_drained && of_host(other) == group)
            .map(|other| other.containers)
            .sum(),
    }
}

/// Returns the free share of the host's scarcest resource, in millionths, if the container is
/// placed on it.
fn left_after(request: &ContainerRequest, host: &Candidate) -> u128 {
    let left = host
        .free
        .checked_sub(request.required)
        .unwrap_or(Resources::ZERO);
    [Resource::Cpu, Resource::Memory, Resource::Disk]
        .into_iter()
        .map(|of| {
            let total = u128::from(host.total.amount(of).max(1));
            u128::from(left.amount(of)) * 1_000_000 / total
        })
        .min()
        .unwrap_or(0)
}

fn missing_resources(request: &ContainerRequest, hosts: &[Candidate]) -> String {
    let open = hosts.iter().filter(|host| !host.is_drained);
    let count = open.clone().count();
    let suiting: Vec<_> = open.filter(|host| permits(request, host, hosts)).collect();
    let drained = match hosts.len() - count {
        0 => String::new(),
        drained => format!("; {drained} drained"),
    };
    match suiting.iter().max_by_key(|host| left_after(request, host)) {
        _ if hosts.is_empty() => "no host has registered".to_string(),
        _ if count == 0 => "all hosts are drained".to_string(),
        None => format!("none of {count} hosts has its attributes{drained}"),
        Some(host) => format!(
            "of {} hosts, {} has {} left{drained}",
            suiting.len(),
            host.id,
            host.free
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ardea_coordination::packing::MilliCores;
    use proptest::prelude::*;

    fn size(cores: u64) -> Resources {
        Resources {
            cpu: MilliCores(cores * 1000),
            memory_bytes: cores << 30,
            disk_bytes: 0,
        }
    }

    fn request(id: u32, cores: u64, attributes: &[(&str, &str)]) -> ContainerRequest {
        let attributes = attributes
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()));
        ContainerRequest {
            id: ContainerId(id),
            required: size(cores),
            attributes: attributes.collect(),
        }
    }

    fn host(id: &str, cores: u64, attributes: &[(&str, &str)]) -> Candidate {
        let attributes = attributes
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()));
        Candidate {
            id: id.to_string(),
            free: size(cores),
            total: size(cores),
            attributes: attributes.collect(),
            containers: 0,
            is_drained: false,
        }
    }

    fn drained(host: Candidate) -> Candidate {
        Candidate {
            is_drained: true,
            ..host
        }
    }

    fn told(refused: &UnplaceableContainer) -> String {
        Error::from(refused.clone()).to_string()
    }

    #[test]
    fn hosts_fill_evenly() {
        let hosts = vec![host("a", 4, &[]), host("b", 4, &[])];
        let missing = (1..=4).map(|id| request(id, 2, &[])).collect();
        let (placed, refused) = place(missing, hosts);
        assert!(refused.is_empty());
        assert_eq!(placed.values().filter(|id| *id == "a").count(), 2);
    }

    #[test]
    fn attributes_of_hosts_are_kept_and_others_say_nothing() {
        let rack = |name| [("rack", name)];
        let hosts = vec![host("a", 9, &rack("r1")), host("b", 1, &rack("r2"))];
        let attributes = [("rack", "r2"), ("colour", "blue")];
        let (placed, _) = place(vec![request(1, 1, &attributes)], hosts.clone());
        assert_eq!(placed[&ContainerId(1)], "b");
        let (_, refused) = place(vec![request(1, 1, &rack("r3"))], hosts.clone());
        assert_eq!(Error::from(refused[0].clone()).code(), ErrorCode::NoRoom);
        assert!(told(&refused[0]).contains("none of 2 hosts has its attributes"));
        let (placed, _) = place(vec![request(1, 1, &[("host", "b")])], hosts);
        assert_eq!(placed[&ContainerId(1)], "b");
    }

    #[test]
    fn spread_comes_before_room() {
        let hosts = vec![
            host("a", 90, &[("rack", "r1")]),
            host("b", 80, &[("rack", "r1")]),
            host("c", 9, &[("rack", "r2")]),
        ];
        let missing = |spread| {
            (1..=2)
                .map(|id| request(id, 1, &[("spread", spread)]))
                .collect()
        };
        let (placed, _) = place(missing("rack"), hosts.clone());
        assert_eq!(placed.values().collect::<Vec<_>>(), ["a", "c"]);
        let (placed, _) = place(missing("host"), hosts);
        assert_eq!(placed.values().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_preferred_host_is_taken_while_it_has_room() {
        let hosts = vec![
            host("a", 9, &[]),
            host("b", 2, &[]),
            drained(host("c", 9, &[])),
        ];
        let prefers = |id, name| request(id, 1, &[(PREFERRED_HOST_ATTRIBUTE, name)]);
        let missing = vec![
            prefers(1, "b"),
            prefers(2, "b"),
            prefers(3, "b"),
            prefers(4, "c"),
        ];
        let (placed, refused) = place(missing, hosts);
        assert!(refused.is_empty());
        assert_eq!(placed.values().collect::<Vec<_>>(), ["b", "b", "a", "a"]);
    }

    #[test]
    fn what_has_no_room_is_refused_with_the_numbers_and_the_rest_is_placed() {
        let missing = vec![request(1, 64, &[]), request(2, 1, &[])];
        let (placed, refused) = place(missing, vec![host("a", 4, &[])]);
        assert_eq!(placed.len(), 1);
        let error = told(&refused[0]);
        assert!(error.contains("container 1, which needs 64 cpu"), "{error}");
        assert!(error.contains("of 1 hosts, a has"), "{error}");
        let (_, refused) = place(vec![request(1, 1, &[])], Vec::new());
        assert!(told(&refused[0]).contains("no host has registered"));
    }

    #[test]
    fn a_host_that_is_drained_gets_nothing_and_its_attributes_count_all_the_same() {
        let hosts = vec![
            drained(host("a", 90, &[("rack", "r1")])),
            host("b", 2, &[]),
            host("c", 1, &[]),
        ];
        let (placed, refused) = place(vec![request(1, 2, &[]), request(2, 2, &[])], hosts.clone());
        assert_eq!(placed[&ContainerId(1)], "b");
        let why = &refused[0].why;
        assert!(
            why.starts_with("of 2 hosts, ") && why.ends_with(" left; 1 drained"),
            "{why}"
        );
        let (placed, refused) = place(vec![request(1, 1, &[("rack", "r1")])], hosts);
        assert!(placed.is_empty());
        assert_eq!(
            refused[0].why,
            "none of 2 hosts has its attributes; 1 drained"
        );
        let all = vec![drained(host("a", 9, &[]))];
        let (_, refused) = place(vec![request(1, 1, &[])], all);
        assert_eq!(refused[0].why, "all hosts are drained");
    }

    proptest! {
        #[test]
        fn no_host_gets_more_than_it_has(
            sizes in proptest::collection::vec(0_u64..6, 0..30),
            hosts in proptest::collection::vec(0_u64..20, 0..6),
        ) {
            let missing: Vec<_> = (1_u32..).zip(&sizes).map(|(id, cores)| request(id, *cores, &[])).collect();
            let named: Vec<_> = hosts.iter().enumerate().map(|(n, cores)| host(&format!("h{n}"), *cores, &[])).collect();
            let (placed, refused) = place(missing.clone(), named.clone());
            prop_assert_eq!(placed.len() + refused.len(), missing.len());
            for host in named {
                let there = missing.iter().filter(|request| placed.get(&request.id) == Some(&host.id));
                let sum = there.fold(Resources::ZERO, |sum, request| {
                    sum.checked_add(request.required).expect("small numbers")
                });
                prop_assert!(sum.fits_in(&host.total));
            }
        }
    }
}
