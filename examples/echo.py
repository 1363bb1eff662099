"""An AgentScope agent that needs no network: it echoes the message."""

from agentscope.agent import Agent
from agentscope.credential import CredentialBase
from agentscope.formatter import OpenAIChatFormatter
from agentscope.message import TextBlock
from agentscope.model import ChatModelBase, ChatResponse


class Echo(ChatModelBase):
    formatter = OpenAIChatFormatter()

    async def _call_api(self, model_name, messages, **options):
        said = [message for message in messages if message.role == "user"][-1]

        async def words():
            for word in f"You said: {said.get_text_content()}".split():
                yield ChatResponse([TextBlock(id="words", text=word + " ")], is_last=False)

        return words()


agent = Agent("echo", "You repeat.", Echo(CredentialBase(), "echo", Echo.Parameters()))
