//! The conformance suite on files.

use ardea_state_manager::conformance::Plan;

fn plan() -> Plan {
    Plan::Files
}

ardea_state_manager::conformance_suite!(plan);
