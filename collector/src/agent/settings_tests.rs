use super::*;

fn read(file: &str, environment: &[(&str, &str)]) -> Result<Settings, String> {
    let variable = |name: &str| {
        let found = environment.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let mut settings = of(&file.parse().unwrap(), variable)?;
    if settings.receivers.is_empty() {
        settings.receivers.extend(of_environment(variable)?);
    }
    Ok(settings)
}

#[test]
fn a_file_says_everything() {
    let settings = read(
        "window = '5s'\nrate = '19'\nmax_overhead = '1%'\nprocesses = 'a,b'\nservice = 'shop'\nspool = '/s'\nmemory = '1M'\ndisk = '2M'\n[labels]\nversion = '1'\n\
         [[send]]\notlp = 'http://a:4318'\ntimeout = '1s'\ncertificate = '/ca'\nheaders = { a = 'b' }\n\
         [[send]]\npyroscope = 'https://p/'\n[[send]]\nparca = 'http://q'\n[[send]]\nclickhouse = 'http://c:8123/db/'\n[[send]]\nfiles = '/f'",
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://other:4318"), ("OTEL_SERVICE_NAME", "no")],
    )
    .unwrap();
    assert_eq!(settings.window, Duration::from_secs(5));
    let course = (settings.rate, settings.max_overhead, &settings.processes);
    let rate = units::Rate::parse("19").ok();
    assert_eq!(
        course,
        (rate, Some(units::Share(1000)), &Some("a,b".into()))
    );
    assert_eq!(settings.service.as_deref(), Some("shop"));
    assert_eq!(
        (settings.limits.memory, settings.limits.disk),
        (1 << 20, 2 << 20)
    );
    assert_eq!(settings.labels["version"], "1");
    let addresses: Vec<_> = settings.receivers.iter().map(|one| &*one.address).collect();
    assert_eq!(
        addresses,
        [
            "http://a:4318/v1development/profiles",
            "https://p/ingest",
            "http://q/profiles/writeraw",
            "http://c:8123/?database=db",
            "/f"
        ]
    );
    let database = |address| super::database(address);
    assert_eq!(database("http://c").unwrap(), "http://c/?database=default");
    assert!(database("http://c/a/b").is_err() && database("http://c/a&query=x").is_err());
    let first = &settings.receivers[0];
    assert_eq!(first.timeout, Duration::from_secs(1));
    assert_eq!(first.headers["a"], "b");
    assert_eq!(first.certificate.as_deref(), Some(Path::new("/ca")));
}

#[test]
fn the_environment_is_that_of_opentelemetry() {
    let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/x/");
    let settings = read(
        "",
        &[
            base,
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%20c, d=e"),
            ("OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "d=f"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=s%2C1,k%3D=v"),
        ],
    )
    .unwrap();
    let [one] = &settings.receivers[..] else {
        panic!("{settings:?}");
    };
    assert_eq!(one.address, "http://a:4318/x/v1development/profiles");
    assert_eq!((&*one.headers["a"], &*one.headers["d"]), ("b c", "f"));
    assert_eq!(one.timeout, Duration::from_millis(2500));
    assert_eq!(settings.service.as_deref(), Some("s,1"));
    assert_eq!(settings.labels["k="], "v");
    let own = ("OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://b/as/it/is");
    let settings = read("", &[base, own]).unwrap();
    assert_eq!(settings.receivers[0].address, "http://b/as/it/is");
}

#[test]
fn a_user_and_a_password_are_a_header_and_in_no_address() {
    let basic = "Basic dXM6c2VjcmV0"; // us:secret
    let file = "[[send]]\notlp = 'http://us:secret@a?t=x'\n[[send]]\nclickhouse = 'http://us:secret@c/db'\n\
                [[send]]\npyroscope = 'http://us:secret@p'\nheaders = { authorization = 'other' }";
    let mut receivers = read(file, &[]).unwrap().receivers;
    let whole = (
        "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT",
        "http://us:secret@e/p",
    );
    receivers.extend(read("", &[whole]).unwrap().receivers);
    let found: Vec<_> = receivers
        .iter()
        .map(|one| (&*one.address, &*one.headers["authorization"]))
        .collect();
    assert_eq!(
        found,
        [
            ("http://a/v1development/profiles?t=x", basic),
            ("http://c/?database=db", basic),
            ("http://p/ingest", "other"),
            ("http://e/p", basic),
        ]
    );
    let why = read("[[send]]\nclickhouse = 'http://us:secret@c?x'", &[]).unwrap_err();
    assert!(
        why.contains("HOST:PORT/DATABASE") && !why.contains("secret"),
        "{why}"
    );
}

#[test]
fn a_service_is_named_by_the_command_line_then_the_file_then_the_environment() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    let all = [
        ("OTEL_SERVICE_NAME", "name"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=attribute"),
    ];
    let name = |line: &[&str], file: &str, environment: &[(&str, &str)]| {
        let line = ["agent"].iter().chain(line).chain(&["--", "true"]);
        let args = <Line as clap::Parser>::parse_from(line).args;
        let mut settings = read(file, environment).unwrap();
        settings.take(&args, |_| None).unwrap();
        settings.service
    };
    let (label, service) = (
        "[labels]\n'service.name' = 'label'",
        "service = 'service'\n",
    );
    let both = [service, label].concat();
    let given = ["--label", "service.name=given", "--service", "told"];
    assert_eq!(name(&given, &both, &all).as_deref(), Some("told"));
    assert_eq!(name(&given[..2], &both, &all).as_deref(), Some("given"));
    assert_eq!(name(&[], &both, &all).as_deref(), Some("service"));
    assert_eq!(name(&[], label, &all).as_deref(), Some("label"));
    assert_eq!(name(&[], "", &all).as_deref(), Some("name"));
    assert_eq!(name(&[], "", &all[1..]).as_deref(), Some("attribute"));
    assert_eq!(name(&[], "", &[]), None);
}

#[test]
fn what_is_wrong_is_named() {
    for (file, named) in [
        ("windows = '5s'", "windows"),
        ("window = 5", "window"),
        ("window = '5 parsecs'", "parsecs"),
        ("window = '1999ms'", "2s or more"),
        ("memory = '1'", "memory"),
        ("labels = 'a'", "labels"),
        ("send = 'a'", "[[send]]"),
        ("[[send]]", "otlp"),
        ("[[send]]\notlp = 'a'", "http://HOST"),
        ("[[send]]\notlp = 'http://a'\nparca = 'http://a'", "one of"),
        (
            "[[send]]\notlp = 'http://a'\nheader = { a = 'b' }",
            "header",
        ),
    ] {
        let why = read(file, &[]).unwrap_err();
        assert!(why.contains(named), "{file}: {why}");
    }
    let why = read("", &[("OTEL_RESOURCE_ATTRIBUTES", "a")]).unwrap_err();
    assert!(why.contains("OTEL_RESOURCE_ATTRIBUTES"), "{why}");
    let grpc = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ];
    let why = read("", &grpc).unwrap_err();
    assert!(why.contains("http/protobuf"), "{why}");
    let own = ("OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL", "http/protobuf");
    assert!(read("", &[grpc[0], grpc[1], own]).is_ok());
    let of_files = read("[[send]]\nfiles = '/f'", &grpc).unwrap();
    assert_eq!(of_files.receivers.len(), 1);
}

#[test]
fn a_line_that_cannot_be_read_is_named_and_not_shown() {
    let text = "window = '5s'\n[[send]]\nheaders = { authorization = 'secret }\n";
    let why = parse(text).unwrap_err();
    assert!(
        why.starts_with("line 3: ") && !why.contains("secret"),
        "{why}"
    );
}
