"""Selectors in the language of JMS: from text to tokens, and to a tree of conditions that messages are tested by."""
