"""The agents under the names that users import; the code is in `synora.algorithms`."""
