//! `agents.NAME.client_options`: which options of clients reach the model of an agent.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use turnwire_agent::ClientOptions;
use turnwire_wires::ModelOption;

/// Which options of clients reach the model of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptionsSetting(pub ClientOptions);

impl<'de> Deserialize<'de> for ClientOptionsSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum RawSetting {
            Word(String),
            List(Vec<String>),
        }

        let expected = || {
            let names: Vec<&str> = ModelOption::ALL.iter().map(|option| option.name()).collect();
            format!("expected \"all\", \"none\" or a list of {}", names.join(", "))
        };
        let wrong =
            |word: &str| D::Error::custom(format!("invalid option \"{word}\": {}", expected()));
        match RawSetting::deserialize(from).map_err(|_| D::Error::custom(expected()))? {
            RawSetting::Word(word) => match word.as_str() {
                "all" => Ok(Self(ClientOptions::All)),
                "none" => Ok(Self(ClientOptions::None)),
                word => Err(wrong(word)),
            },
            RawSetting::List(names) => {
                let option = |name: &String| ModelOption::named(name).ok_or_else(|| wrong(name));
                let list = names.iter().map(option).collect::<Result<_, _>>()?;
                Ok(Self(ClientOptions::List(list)))
            }
        }
    }
}
