//! The commands for clusters, against a simulated cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ardea_core::{Error, ErrorCode};
use serde_json::Value;

use crate::ardea::Finished;
use crate::served::Served;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs a command that has to fail with this code and message.
pub(crate) fn fails(served: &Served, line: &str, code: i32, says: &str) -> Finished {
    let finished = served.run(line);
    assert_eq!(finished.code, Some(code), "{line}: {finished:?}");
    assert!(finished.err.contains(says), "{line}: {finished:?}");
    assert_eq!(finished.out, "", "{line}");
    finished
}

#[test]
fn jobs_are_listed_and_described_for_people_and_programs() {
    let served = Served::with_word_count();
    let list = served.succeed("list");
    assert!(list.contains("word-count  running"), "{list}");
    let listed = json(&served.succeed("list --json"));
    assert_eq!(listed[0]["name"], "word-count");
    assert_eq!(listed[0]["instance_count"], 5);

    let described = served.succeed("describe word-count");
    for part in [
        "submission 2a",
        "wordcount --words 100",
        "slice = 50us",
        "counts#0",
        "plan 1 was made",
    ] {
        assert!(described.contains(part), "{part}: {described}");
    }
    let described = json(&served.succeed("describe word-count --json"));
    assert_eq!(described["containers"][1]["id"], 2);
    assert!(
        served
            .succeed("list --cluster pretended")
            .contains("word-count")
    );
}

#[test]
fn a_job_that_is_gone_is_described_and_listed_with_all() {
    let served = Served::with_word_count();
    served.succeed("kill word-count --yes");
    fails(&served, "describe wordcount", 2, "there is no job");
    let described = served.succeed("describe word-count");
    assert!(described.contains("ended      killed"), "{described}");
    for plan in ["plan word-count", "plan word-count --cluster pretended"] {
        fails(&served, plan, 2, "ARD-604: job \"word-count\" ended at ");
        fails(&served, plan, 2, ": it was killed");
    }
    assert_eq!(json(&served.succeed("list --json")), json("[]"));
    let all = json(&served.succeed("list --all --json"));
    assert_eq!(all["past"][0]["name"], "word-count");
    let all = served.succeed("list --all");
    assert!(all.contains("word-count  2a          killed"), "{all}");
    served.submit("word-count", 43);
    let all = served.succeed("list --all");
    assert!(all.contains("word-count  2b          running"), "{all}");
    let earlier = served.run("logs word-count --submission 2A");
    assert_eq!(earlier.out, "1 stdout  hello from submission 2a\n");
    assert!(earlier.err.contains(": it was killed"), "{earlier:?}");
    let now = served.run("logs word-count --submission 2b");
    assert!(now.out.contains("hello from container 2"), "{now:?}");
    assert_eq!(now.err, "");
    let none = "logs word-count --submission 2c";
    fails(&served, none, 2, "nothing is known of a submission 2c");
    let none = "logs word-count --submission last";
    fails(&served, none, 2, "hexadecimal digits");
}

#[test]
fn components_are_told_with_what_can_be_set() {
    let served = Served::with_word_count();
    let words = served.succeed("components words");
    assert!(words.contains("vocabulary  1000"), "{words}");
    let all = json(&served.succeed("components --json"));
    assert_eq!(all.as_array().unwrap().len(), 5);
    fails(&served, "components wrods", 2, "did you mean words?");
}

#[test]
fn a_job_is_told_what_to_do() {
    let served = Served::with_word_count();
    for line in [
        "pause word-count",
        "resume word-count",
        "restart word-count 2",
        "update word-count words=4 counts=1",
        "kill word-count",
    ] {
        let finished = served.run(line);
        assert_eq!(finished.code, Some(0), "{line}: {finished:?}");
        assert!(
            finished.err.starts_with("word-count "),
            "{line}: {finished:?}"
        );
        assert_eq!(finished.out, "", "{line}");
    }
    let commands = [
        "pause word-count",
        "resume word-count",
        "restart word-count 2",
        "update word-count {\"counts\": 1, \"words\": 4}",
        "kill word-count",
    ];
    assert_eq!(served.cluster.commands(), commands);
    assert_eq!(json(&served.succeed("list --json")), json("[]"));
}

#[test]
fn a_command_waits_for_whoever_is_about_to_lead_the_job_as_long_as_patience_lasts() {
    let served = Served::with_word_count();
    served.cluster.fail_without_leader("word-count", 2);
    served.succeed("pause word-count");
    served.cluster.fail_without_leader("word-count", u32::MAX);
    for hasty in ["resume word-count", "kill word-count --yes"] {
        let before = served.cluster.refused_count();
        let hasty = format!("{hasty} --set cluster.patience=1s");
        fails(&served, &hasty, 3, "has no leader");
        // Once, and once more at the end of the patience: hosts ask for retries after a second.
        assert!(served.cluster.refused_count() <= before + 2);
    }
    served.cluster.fail_without_leader("word-count", 1);
    served.succeed("kill word-count --yes");
    let commands = ["pause word-count", "kill word-count"];
    assert_eq!(served.cluster.commands(), commands);
}

#[test]
fn a_job_of_which_no_host_is_there_is_not_asked_to_be_killed_again_and_again() {
    let served = Served::with_word_count();
    let what = "no host is there for the job \"word-count\"";
    let why = Error::new(ErrorCode::Network, what).into();
    served.cluster.refuse("word-count", u32::MAX, why);
    fails(&served, "kill word-count --yes", 3, "no host is there");
    assert_eq!(served.cluster.refused_count(), 1);
}

#[test]
fn plans_metrics_logs_and_top_are_printed() {
    let served = Served::with_word_count();
    let plan = served.succeed("plan --cluster pretended word-count");
    for part in [
        "logical plan",
        "→ counts [keyed]",
        "container 2 up on here",
        "packing plan 1",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let plan = json(&served.succeed("plan word-count --cluster pretended --json"));
    assert_eq!(plan["packing"]["containers"][0]["id"], 1);
    assert_eq!(json(&served.succeed("plan word-count --json")), plan);
    fails(
        &served,
        "metrics word-count --vertex cuonts",
        2,
        "did you mean counts? it has: counts, lines, words",
    );
    fails(
        &served,
        "metrics word-count --name nothing --since 1m",
        2,
        "it has: ardea_records_in_total",
    );

    let metrics = served.succeed("metrics word-count --vertex words");
    assert_eq!(metrics.lines().count(), 3, "{metrics}");
    let range = "metrics word-count --name ardea_records_in_total --container 1 --since 10m --json";
    assert_eq!(
        json(&served.succeed(range))["series"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    assert_eq!(
        served.succeed("logs word-count"),
        "1 stdout  hello from container 1\n2 stdout  hello from container 2\n"
    );
    let one = "logs word-count --container 2 --source stderr --follow";
    assert_eq!(served.succeed(one), "hello from container 2\n");

    let top = served.succeed("top word-count --once");
    assert!(top.contains("1.25 M") && top.contains("64MiB"), "{top}");
    let top = json(&served.succeed("top word-count --once --json"));
    assert_eq!(top["vertices"][2]["vertex"], "counts");
    let status = served.succeed("cluster status");
    assert!(
        status.contains("pretended") && status.contains("here"),
        "{status}"
    );
}

#[test]
fn what_would_be_ignored_by_a_plan_is_refused() {
    let served = Served::with_word_count();
    fs::write(served.folder.path().join("count.yaml"), WORD_COUNT).unwrap();
    let arguments = "\"extra\" is not accepted";
    fails(&served, "plan word-count extra", 2, arguments);
    let there = "plan --cluster pretended word-count extra";
    fails(&served, there, 2, arguments);
    for line in [
        "plan word-count --threads 2",
        "plan count.yaml --threads 2",
        "plan --threads 2 --dry-run sensors --rate 10",
    ] {
        fails(&served, line, 2, "--threads is for jobs that run in one");
    }
    let at = "plan --at http://127.0.0.1:1 count.yaml";
    fails(&served, at, 2, "contacts none");
    fails(&served, "plan wordcuont extra", 2, "did you mean");
    served.succeed("plan sensors --threads 2 --rate 10");
}

#[test]
fn numbers_and_durations_that_make_no_sense_are_told_what_would() {
    let served = Served::with_word_count();
    for line in [
        "restart word-count x",
        "metrics word-count --instance x",
        "run --threads 0 sensors",
        "cluster start --workers x",
        "logs word-count --tail x",
    ] {
        fails(&served, line, 2, "write a whole number");
    }
    for line in ["top word-count --every 0s", "list --tables-every 0s"] {
        fails(&served, line, 2, "must be at least 100ms");
    }
    let none = "restart word-count 9";
    fails(&served, none, 2, "hint: it has: 1, 2");
}

#[test]
fn what_is_wrong_is_told_with_a_code_and_what_to_do() {
    let served = Served::with_word_count();
    fails(
        &served,
        "describe word-cuont",
        2,
        "did you mean word-count?",
    );
    fails(&served, "update word-count wrods=2", 2, "ARD-101");
    fails(&served, "update word-count words", 2, "write VERTEX=N");
    fails(&served, "restart word-count 9", 2, "ARD-624");
    fails(&served, "list --cluster other", 2, "ARD-606");
    fails(&served, "list --at http://127.0.0.1:1", 3, "ARD-303");
    fails(&served, "list --at nowhere", 2, "ARD-102");
    fails(&served, "metrics word-count --since 5m", 2, "--name");
    let finished = served.run("describe word-cuont --json");
    let error = json(&finished.err);
    assert_eq!(error["error"]["code"], "ARD-604");
    assert_eq!(error["error"]["hint"], "did you mean word-count?");
}

#[test]
fn a_cluster_that_is_not_up_is_told_and_how_to_start_it() {
    let served = Served::new(None);
    fails(
        &served,
        "list --set cluster.api=auto",
        3,
        "ardea cluster start",
    );
    let stopped = served.run("cluster stop");
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.err.contains("is not up"), "{stopped:?}");
    let stopped = served.run("cluster stop --kill-jobs --set cluster.api=auto");
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(
        !served.folder.path().join(".local").exists(),
        "looking makes nothing"
    );
}

#[test]
fn a_token_is_read_from_a_file_that_nobody_else_can_read() {
    let served = Served::new(Some("sesame"));
    fails(&served, "list", 2, "cluster.token_file");
    let path = served.folder.path().join("token");
    fs::write(&path, "sesame\n").unwrap();
    let line = "list --set cluster.token_file={folder}/token";
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fails(&served, line, 3, "chmod 600");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    served.succeed(line);
    fs::write(&path, "barley").unwrap();
    fails(&served, line, 2, "ARD-650");
}

#[test]
fn a_clusters_profile_comes_from_the_file_and_config_says_so() {
    let served = Served::with_word_count();
    let text = format!(
        "[clusters.pretended]\napi = {:?}\ncontainer.memory = \"1GiB\"\n",
        served.base
    );
    fs::write(served.folder.path().join("ardea.toml"), text).unwrap();
    assert!(
        served
            .succeed("list --cluster pretended")
            .contains("word-count")
    );
    for told in ["did you mean pretended?", "(from --cluster)"] {
        fails(&served, "list --cluster pretend", 2, told);
    }
    let set = served.succeed("config --set cluster.name=pretended");
    let named = served.succeed("config --cluster pretended");
    let named = named.replace("--cluster", "--set");
    assert_eq!(
        set.split_whitespace().collect::<Vec<_>>(),
        named.split_whitespace().collect::<Vec<_>>()
    );
    let config = served.succeed("config --set cluster.name=pretended --json");
    let memory = json(&config);
    let memory = memory.as_array().unwrap();
    let memory = memory
        .iter()
        .find(|entry| entry["key"] == "container.memory");
    assert_eq!(memory.unwrap()["source"], "./ardea.toml:3");
    let of_user = served.folder.path().join(".config/ardea");
    fs::create_dir_all(&of_user).unwrap();
    fs::write(
        of_user.join("ardea.toml"),
        "cluster.packing = \"binpack\"\n",
    )
    .unwrap();
    let config = served.succeed("config");
    assert!(config.contains("binpack"), "{config}");
}

/// A topology in a file.
pub(crate) const WORD_COUNT: &str = "\
name: word count
spouts:
  - name: words
    component: words
    settings: { total: 1000 }
bolts:
  - name: counts
    component: count
    parallelism: 3
    inputs: [{ from: words, grouping: fields, fields: [word] }]
";

#[test]
fn a_topology_in_a_file_is_run_planned_and_submitted() {
    let served = Served::new(None);
    let file = served.folder.path().join("count.yaml");
    fs::write(&file, WORD_COUNT).unwrap();
    served.succeed("run count.yaml");

    let plan = served.succeed("plan count.yaml --dry-run --set job.containers=2");
    assert!(plan.contains("4 instances in 2 containers"), "{plan}");
    let limits = "--set container.cpu=2 --set instance.cpu=500m --set container.padding=0";
    let plan = json(&served.succeed(&format!("plan count.yaml --json {limits}")));
    assert_eq!(
        plan["packing"]["containers"][0]["required"]["cpu_milli"],
        2000
    );
    let tight = "--set container.cpu=100m --set instance.cpu=500m";
    fails(&served, &format!("submit count.yaml {tight}"), 2, "ARD-601");
    assert!(
        !served.folder.path().join(".local").exists(),
        "nothing was stored"
    );

    let submitted = json(&served.succeed("submit count.yaml --name counted --json"));
    assert_eq!(submitted["job"], "counted");
    assert_eq!(submitted["cluster"], "pretended");
    assert_eq!(submitted["phase"], "running");
    let packages = served
        .folder
        .path()
        .join(".local/state/ardea/clusters/local/packages");
    assert!(packages.is_dir());
    let described = json(&served.succeed("describe counted --json"));
    assert_eq!(described["program"]["package"], submitted["package"]);
    assert_eq!(described["program"]["executable"], "ardea");
    assert_eq!(described["program"]["arguments"][0], "count.yaml");
    let plan = served.succeed("plan sensors --dry-run --rate 10");
    assert!(plan.contains("packing plan 1"), "{plan}");
    served.succeed("submit sensors --detach -- --rate 10");
    let described = json(&served.succeed("describe sensors --json"));
    let arguments = serde_json::json!(["sensors", "--rate", "10"]);
    assert_eq!(described["program"]["arguments"], arguments);
    fails(&served, "submit count.yaml --name counted", 2, "ARD-603");
    fails(
        &served,
        "submit count.yaml --file {folder}/none",
        3,
        "ARD-301",
    );
    let mode = "submit count.yaml --name batches --set mode=micro-batch";
    fails(&served, mode, 2, "requires a guarantee");
    let auto = served.succeed("submit count.yaml --name auto --set mode=auto --detach");
    assert!(auto.contains("mode=continuous: "), "{auto}");
    let described = json(&served.succeed("describe auto --json"));
    assert_eq!(described["settings"]["mode"], "continuous");
    fails(&served, "submit nothing.yaml", 3, "ARD-301");
    fails(&served, "submit nothing", 3, "ardea::main");
    fs::write(served.folder.path().join("access.log"), "GET /").unwrap();
    fails(
        &served,
        "submit access.log",
        3,
        "is no topology by its name",
    );
    let many = "submit count.yaml --name many --set job.containers=99";
    let told = "is more than needed: 4 instances are in 4 containers";
    let submitted = served.succeed(many);
    assert!(submitted.contains(told), "{submitted}");
}

#[test]
fn the_book_has_every_setting_of_clusters_and_its_topology_can_be_packed() {
    let book = concat!(
        include_str!("../../../../docs/submitting-jobs.md"),
        include_str!("../../../../docs/cluster-settings.md")
    );
    let served = Served::new(None);
    let config = json(&served.succeed("config --json"));
    for entry in config.as_array().unwrap() {
        let key = entry["key"].as_str().unwrap();
        let (table, name) = key.split_once('.').unwrap_or(("", key));
        let is_of_clusters = ["cluster", "container", "instance", "job"].contains(&table);
        let is_told = book.contains(&format!("`{key}`")) || book.contains(&format!("`.{name}`"));
        assert!(
            !is_of_clusters || is_told,
            "docs/cluster-settings.md says nothing of {key}"
        );
    }
    let fenced = |language: &str| {
        let begin = format!("```{language}\n");
        let (_, rest) = book.split_once(&begin).unwrap();
        rest.split_once("```").unwrap().0
    };
    fs::write(served.folder.path().join("word-count.yaml"), fenced("yaml")).unwrap();
    let plan = served.succeed("plan word-count.yaml --set job.containers=2");
    assert!(plan.contains("4 instances in 2 containers"), "{plan}");
    fs::write(served.folder.path().join("ardea.toml"), fenced("toml")).unwrap();
    let config = served.succeed("config --set cluster.name=prod");
    assert!(
        config.contains("etcd://10.0.0.7:2379,10.0.0.8:2379/prod"),
        "{config}"
    );
}

#[test]
fn maps_are_printed_for_people_and_programs() {
    let served = Served::with_word_count();
    let listed = served.succeed("map list");
    assert!(
        listed.contains("berths  text  any value        1"),
        "{listed}"
    );
    assert_eq!(served.succeed("map get berths seagull"), "7\n");
    served.succeed("map put berths tern {\"berth\":9}");
    served.succeed("map put berths gull text");
    let scanned = served.succeed("map scan berths");
    assert_eq!(scanned, "gull  \"text\"\nseagull  7\ntern  {\"berth\":9}\n");
    let scanned = json(&served.succeed("map scan berths --limit 1 --json"));
    assert_eq!(scanned["more"], true);
    assert_eq!(scanned["entries"][0]["value"], "text");
    assert_eq!(served.succeed("map remove berths tern"), "{\"berth\":9}\n");
    fails(&served, "map get berths tern", 2, "ARD-626");
    fails(&served, "map get quays tern", 2, "ARD-626");
    fails(&served, "map scan berths --where berth", 2, "FIELD=VALUE");
    served.succeed("map drop berths");
    assert_eq!(served.succeed("map scan berths"), "");
}
