//! Splits an address with several hosts into one address per host. So a host that must not be used, such as a replaced
//! primary, does not hide the others.

use std::net::IpAddr;
use tokio_postgres::{Config, config::Host};

/// Returns a configuration for each host alone, in order.
pub(super) fn each(config: &Config) -> Vec<Config> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    // The driver reports such a mismatch.
    let has_one_port_each = ports.len() <= 1 || ports.len() == hosts.len().max(addresses.len());
    let has_pairs = hosts.is_empty() || addresses.is_empty() || hosts.len() == addresses.len();
    if hosts.len().max(addresses.len()) < 2 || !has_one_port_each || !has_pairs {
        return vec![config.clone()];
    }
    let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied();
    (0..hosts.len().max(addresses.len())).map(|at| alone(config, hosts.get(at), addresses.get(at), port(at))).collect()
}

/// Returns a configuration for this host alone, otherwise unchanged. The driver cannot remove a host from a
/// configuration.
fn alone(config: &Config, host: Option<&Host>, address: Option<&IpAddr>, port: Option<u16>) -> Config {
    let mut one = Config::new();
    match host {
        Some(Host::Tcp(name)) => one.host(name),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => one.host_path(folder),
        None => &mut one,
    };
    address.map(|address| one.hostaddr(*address));
    port.map(|port| one.port(port));
    config.get_user().map(|user| one.user(user));
    config.get_password().map(|password| one.password(password));
    config.get_dbname().map(|name| one.dbname(name));
    config.get_options().map(|options| one.options(options));
    config.get_application_name().map(|name| one.application_name(name));
    config.get_connect_timeout().map(|time| one.connect_timeout(*time));
    config.get_tcp_user_timeout().map(|time| one.tcp_user_timeout(*time));
    config.get_keepalives_interval().map(|time| one.keepalives_interval(time));
    config.get_keepalives_retries().map(|count| one.keepalives_retries(count));
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    one
}

#[cfg(test)]
mod tests {
    use super::each;
    use tokio_postgres::Config;

    #[test]
    fn each_host_has_all_but_the_others() {
        let rest = "user=u password=p dbname=d options='-c jit=off' application_name=n sslmode=require \
                    connect_timeout=3 tcp_user_timeout=4 keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 \
                    target_session_attrs=read-write channel_binding=require load_balance_hosts=random";
        let cases: &[(&str, &[&str])] = &[
            ("host=a", &["host=a"]),
            ("host=a,b", &["host=a", "host=b"]),
            ("host=a,b port=1", &["host=a port=1", "host=b port=1"]),
            ("host=a,/run/b port=1,2", &["host=a port=1", "host=/run/b port=2"]),
            ("hostaddr=10.0.0.1,10.0.0.2", &["hostaddr=10.0.0.1", "hostaddr=10.0.0.2"]),
            ("host=a,b hostaddr=10.0.0.1,10.0.0.2", &["host=a hostaddr=10.0.0.1", "host=b hostaddr=10.0.0.2"]),
            ("host=a,b port=1,2,3", &["host=a,b port=1,2,3"]),
            ("host=a,b hostaddr=10.0.0.1", &["host=a,b hostaddr=10.0.0.1"]),
        ];
        for (all, wanted) in cases {
            let parsed = |hosts: &str| format!("{hosts} {rest}").parse::<Config>().unwrap();
            let wanted: Vec<Config> = wanted.iter().map(|hosts| parsed(hosts)).collect();
            assert_eq!(each(&parsed(all)), wanted, "{all}");
        }
    }
}
