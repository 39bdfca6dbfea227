"""Selectors in the language of JMS: text to tokens, to a tree of conditions that messages are tested by."""
