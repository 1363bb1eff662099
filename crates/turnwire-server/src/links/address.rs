//! Which IP addresses are on the public internet. All others may belong to a private network that trusts
//! its own machines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether anybody on the internet could reach this address.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

/// Networks of IPv4 that are not public: IANA's special-purpose registry, multicast, and what is
/// reserved.
const NOT_PUBLIC: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),       // this network, and the unspecified address
    ([10, 0, 0, 0], 8),      // private
    ([100, 64, 0, 0], 10),   // shared by a provider's customers
    ([127, 0, 0, 0], 8),     // this machine
    ([169, 254, 0, 0], 16),  // link-local: also where clouds keep a machine's credentials
    ([172, 16, 0, 0], 12),   // private
    ([192, 0, 0, 0], 24),    // protocol assignments
    ([192, 0, 2, 0], 24),    // documentation
    ([192, 31, 196, 0], 24), // AS112
    ([192, 52, 193, 0], 24), // AMT
    ([192, 88, 99, 0], 24),  // 6to4 relays
    ([192, 168, 0, 0], 16),  // private
    ([198, 18, 0, 0], 15),   // benchmarks
    ([198, 51, 100, 0], 24), // documentation
    ([203, 0, 113, 0], 24),  // documentation
    ([224, 0, 0, 0], 3),     // multicast, reserved, broadcast
];

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let is_in = |(net, bits): &([u8; 4], u32)| {
        let net = u32::from(Ipv4Addr::from(*net));
        (ip.to_bits() ^ net).checked_shr(32 - bits) == Some(0)
    };
    !NOT_PUBLIC.iter().any(is_in)
}

/// Of IPv6, only global unicast addresses are public, and IPv4-mapped and NAT64 addresses of public IPv4
/// addresses.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let [first, second, middle @ .., high, low] = ip.segments();
    let inner = || Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match (first, second) {
        // ::ffff:a.b.c.d is connected to as IPv4; 64:ff9b::a.b.c.d is NAT64.
        (0, 0) if middle == [0, 0, 0, 0xffff] => is_public_v4(inner()),
        (0x64, 0xff9b) if middle == [0; 4] => is_public_v4(inner()),
        // Protocol assignments (Teredo, ORCHID, benchmarks, …); documentation; 6to4, which can hold
        // any address of IPv4.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x2002, _) | (0x3fff, 0..=0xfff) => false,
        (0x2000..=0x3fff, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_that_is_not_public_is_known() {
        for ip in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.31.196.1",
            "192.52.193.1",
            "192.88.99.1",
            "192.168.0.1",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            // IPv6: unspecified, this machine, compatible with IPv4, mapped, translated.
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:0:0:1::8.8.8.8",
            // 6to4 and Teredo, whatever they hold.
            "2002:7f00:1::",
            "2002:808:808::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:1ff::1",
            // Unique local, link-local, site-local, multicast, documentation, discard, segment routing.
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
            "2001:db8::1",
            "3fff::1",
            "3fff:fff::1",
            "100::1",
            "5f00::1",
            "4000::1",
            "1fff::1",
        ] {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn addresses_beside_them_are_public() {
        for ip in [
            "1.0.0.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "169.253.255.255",
            "169.255.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "192.0.3.1",
            "192.167.255.255",
            "192.169.0.1",
            "198.17.255.255",
            "198.20.0.1",
            "203.0.112.1",
            "203.0.114.1",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2001:db7::1",
            "2600::1",
            "2a00:1450::1",
            "3ffe::1",
            "3fff:1000::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
    }
}
