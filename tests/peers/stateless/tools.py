"""The tools and types that the clients bring along."""

from pydantic import BaseModel


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: sunny"


def get_time(city: str) -> str:
    """The time in a city."""
    return f"{city}: noon"


TOOLS = {"get_weather": get_weather, "get_time": get_time}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


class City(BaseModel):
    """A city."""

    name: str
    population: int
