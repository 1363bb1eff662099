//! Options that models refuse, recognised by the model's name.

/// Whether a model accepts a temperature. Claude from Opus 4.7 on accepts none; `OpenAI`'s first reasoning models accept
/// only the default.
pub(crate) fn accepts_temperature(model: &str, temperature: f64) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    if let Some((_, rest)) = name.split_once("claude-") {
        // A longer number is a date.
        let mut version = rest.split(['-', '.']).filter(|part| part.len() < 3);
        let mut number = || version.find_map(|part| part.parse::<u32>().ok());
        let (major, minor) = (number(), number().unwrap_or(0));
        return major.is_none_or(|major| (major, minor) < (4, 7));
    }
    let numbered = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    let reasons = name.strip_prefix('o').is_some_and(numbered)
        || name == "gpt-5"
        || name.starts_with("gpt-5-") && !name.starts_with("gpt-5-chat");
    !reasons || (temperature - 1.0).abs() < f64::EPSILON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_that_take_a_temperature_get_one() {
        for (model, expected) in [
            ("claude-3-5-sonnet-20241022", true),
            ("claude-sonnet-4-20250514", true),
            ("claude-sonnet-4-5-20250929", true),
            ("claude-opus-4-6", true),
            ("claude-opus-4-7", false),
            ("anthropic/claude-opus-4.8", false),
            ("anthropic.claude-opus-4-7-v1:0", false),
            ("claude-sonnet-5", false),
            ("gpt-4o", true),
            ("gpt-5-chat-latest", true),
            ("gpt-5.2", true),
            ("gpt-5-mini", false),
            ("openai/o3", false),
            ("olmo", true),
            ("test-model", true),
        ] {
            assert_eq!(accepts_temperature(model, 0.5), expected, "{model}");
        }
        assert!(accepts_temperature("gpt-5", 1.0));
    }
}
